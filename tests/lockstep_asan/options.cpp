// How AddressSanitizer watches this program. A report ends its kernel where it stands: its fibers do not unwind, so that what they own
// is left behind on purpose.
#if defined(__SANITIZE_ADDRESS__)
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif
