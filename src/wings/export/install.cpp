// Gives the core nothing: programs call export_model().
namespace cohort {

void install_export() {}

}  // namespace cohort
