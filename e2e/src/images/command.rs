//! Runs programs to their end.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};

/// Runs a command, which must succeed, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!("{program} isn't on PATH: install it (e2e/README.md)"),
        _ => anyhow!(error).context(format!("running {program}")),
    })?;
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    ensure!(output.status.success(), "{program} {}: {}\n{out}{err}", arguments.join(" "), output.status);
    Ok(out)
}

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
