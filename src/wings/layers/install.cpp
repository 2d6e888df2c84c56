namespace cohort {

// Adds nothing: programs call the functions of these layers, and the core asks for none.
void install_layers() {}

}  // namespace cohort
