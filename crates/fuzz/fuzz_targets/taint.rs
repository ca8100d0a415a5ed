//! See `fuzz::taint`. Without cargo-fuzz this does nothing.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::taint(data));

#[cfg(not(fuzzing))]
fn main() {}
