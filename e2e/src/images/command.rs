//! Programs of which one reads what the other writes.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Runs a command that reads the standard output of another one, and returns what it writes. Both must succeed.
pub(super) fn pipe(from: &mut Command, to: &mut Command) -> Result<String> {
    let mut first = from.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting the first program")?;
    let between = first.stdout.take().context("a program without output")?;
    let second = to.stdin(between).stdout(Stdio::piped()).spawn().and_then(Child::wait_with_output);
    // The pipe would stay open here, and the first program would wait for a second one that has ended.
    to.stdin(Stdio::null());
    let first = first.wait()?;
    let second = second.with_context(|| format!("running {}", to.get_program().display()))?;
    ensure!(first.success(), "{}: {first}", from.get_program().display());
    ensure!(second.status.success(), "{}: {}", to.get_program().display(), second.status);
    Ok(String::from_utf8_lossy(&second.stdout).into_owned())
}
