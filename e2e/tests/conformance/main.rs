//! The sandbox's suite of API behaviours on a real API server, and sessions of kubectl on both. If one fails on the
//! real server, the test is wrong.

mod kubectl;

use std::process::ExitCode;

fn main() -> ExitCode {
    e2e::conformance::run(&kubectl::sessions())
}
