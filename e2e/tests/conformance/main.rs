//! Behaviours of an API server, on a real one and on a sandbox: the sandbox's suite, sessions of kubectl, and the
//! promises of an informer. If a case of the suite or a session fails on the real server, the test is wrong.

mod informer;
mod kubectl;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The second one runs even if the first fails.
    let ended = [e2e::conformance::run(&kubectl::sessions()), informer::run()];
    ended.into_iter().find(|ended| *ended != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}
