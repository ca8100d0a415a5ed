//! Child processes that never outlive the tests, and free ports for them.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{Permanent, eventually};

/// A shell script that kills a process when a pipe closes without a line: then the tests are gone.
const GUARD: &str = r#"trap '' HUP INT TERM; read -r word || kill -KILL "$0""#;

/// A running child process with its output in a file. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    guard: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; standard output and error are appended to the file `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let guard = Command::new("sh")
            .args(["-c", GUARD, &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) => {
                end(&mut child);
                return Err(error).context("starting sh to guard a child process");
            }
        };
        Ok(Self { name: name.to_owned(), child, guard, log: log.to_owned() })
    }

    /// Returns the path of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its output so far.
    pub fn output(&self) -> String {
        text(&self.log)
    }

    /// Returns an error with the end of its output if the process has ended.
    pub fn still_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let tail = tail(&self.log);
            bail!(Permanent(format!("{} ended: {status}\n{tail}", self.name)));
        }
        Ok(())
    }

    /// Sends SIGTERM, as a container runtime does.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("sending {signal:?} to {}", self.name))
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = format!("end of {}", self.name);
        eventually(&what, within, async || {
            self.child.try_wait()?.with_context(|| format!("still running\n{}", tail(&self.log)))
        })
        .await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
        if let Some(mut pipe) = self.guard.stdin.take() {
            // The guard may be gone already.
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.guard.wait();
    }
}

/// Kills and reaps a child, which may have ended before.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Runs a command, which must succeed, and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let (status, out, err) = run(command)?;
    ensure!(status.success(), "{}: {status}\n{out}{err}", words(command));
    Ok(out)
}

/// Runs a command, which must fail, and returns its standard error.
pub fn refusal(command: &mut Command) -> Result<String> {
    let (status, out, err) = run(command)?;
    ensure!(!status.success(), "{} succeeded: {out}", words(command));
    Ok(err)
}

fn run(command: &mut Command) -> Result<(ExitStatus, String, String)> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!("{} isn't on PATH: install it (e2e/README.md)", command.get_program().display())
        }
        _ => anyhow!(error).context(format!("running {}", words(command))),
    })?;
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Ok((output.status, out, err))
}

/// Returns a command with its arguments, for messages.
fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Returns the content of a log file.
pub fn text(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the last lines of a log file, for messages.
pub fn tail(log: &Path) -> String {
    const LINES: usize = 40;
    let text = text(log);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    lines[from..].join("\n")
}

/// Free ports are below the range that the kernel uses for outgoing connections: a server that is restarted on its port must
/// not find it taken by a client's connection.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// Returns a free port on 127.0.0.1, once per process.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent processes start their search at different ports.
    let offset = u16::try_from(std::process::id() % u32::from(COUNT))?;
    (0..COUNT)
        .map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            FIRST + (offset + step) % COUNT
        })
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .context("no free port on 127.0.0.1")
}
