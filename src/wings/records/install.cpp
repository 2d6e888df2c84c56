namespace cohort {

// Adds nothing: programs and other wings call the functions of this wing, and the core asks for none.
void install_records() {}

}  // namespace cohort
