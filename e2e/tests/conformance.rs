//! The sandbox's suite of API behaviours on a real API server: where a case fails here, the case is wrong.

use std::process::ExitCode;

fn main() -> ExitCode {
    e2e::conformance::run()
}
