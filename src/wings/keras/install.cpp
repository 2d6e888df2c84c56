namespace cohort {

// Adds nothing: programs call load_model() and save_model(), and the core asks for neither.
void install_keras() {}

}  // namespace cohort
