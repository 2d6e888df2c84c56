namespace cohort {

// Adds nothing: programs call the functions of this wing, and the core asks for none.
void install_functional() {}

}  // namespace cohort
