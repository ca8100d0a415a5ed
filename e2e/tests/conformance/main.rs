//! Behaviours of an API server, on a real one and on a sandbox: the sandbox's suite, sessions of kubectl, and the
//! promises of an informer. If a case of the suite or a session fails on the real server, the test is wrong.

mod informer;
mod kubectl;

use std::process::ExitCode;

fn main() -> ExitCode {
    e2e::conformance::run(&kubectl::sessions(), &informer::promises())
}
