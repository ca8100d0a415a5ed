//! See `fuzz::duration`. Without cargo-fuzz this does nothing.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::duration(data));

#[cfg(not(fuzzing))]
fn main() {}
