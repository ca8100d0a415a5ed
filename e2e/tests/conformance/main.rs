//! The sandbox's suite of API behaviours on a real API server, and sessions of kubectl on both. Where one of these fails on the real
//! one, the test is wrong.

mod kubectl;

use std::process::ExitCode;

fn main() -> ExitCode {
    e2e::conformance::run(&kubectl::sessions())
}
