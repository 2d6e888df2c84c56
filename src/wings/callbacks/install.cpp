namespace cohort {

// Adds nothing: programs call the functions of these callbacks, and the core asks for none.
void install_callbacks() {}

}  // namespace cohort
