//! Processes that end with the test, and the structured log of one.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;

use crate::wait::Wait;

/// A process that is killed when it is dropped, however the test ends.
#[derive(Debug)]
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns the child with its standard streams.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status().unwrap();
        assert!(sent.success(), "kill -s {name}: {sent}");
    }

    /// Returns its memory in KiB by a field of `/proc/<pid>/status`, such as `VmRSS`. Linux only.
    pub fn memory(&self, field: &str) -> u64 {
        memory_of(&self.id().to_string(), field)
    }

    /// Returns the processor time of its threads so far. Linux only.
    pub fn processor_time(&self) -> Duration {
        let schedule = |task: &Path| fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let nanos = tasks.filter_map(|task| schedule(&task.ok()?.path()).split(' ').next()?.parse::<u64>().ok()).sum();
        Duration::from_nanos(nanos)
    }

    /// Waits until it has ended, with its standard input closed.
    pub fn wait(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

/// Returns the memory of a process in KiB, by its id or `self`, as [`Process::memory`] does.
pub fn memory_of(process: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mut lines = status.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = lines.next().and_then(|value| value.trim().trim_end_matches(" kB").parse().ok());
    value.unwrap_or_else(|| panic!("no {field} in {status}"))
}

/// Lets all other threads go before this one where there are too few processors. Linux only.
pub fn give_way() {
    rustix::process::setpriority_process(None, 10).unwrap();
}

/// A process whose standard input and output are pipes, for lines of text.
#[derive(Debug)]
pub struct Piped {
    process: Process,
    output: BufReader<ChildStdout>,
}

impl Piped {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let output = BufReader::new(process.child().stdout.take().unwrap());
        Self { process, output }
    }

    /// Returns the process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits for the next line of its output; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for the rest of its output.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Writes a line to its input.
    pub fn write_line(&mut self, line: &str) {
        writeln!(self.process.child().stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until it has ended.
    pub fn wait(self) -> ExitStatus {
        self.process.wait()
    }
}

/// A process whose standard error is a log of JSON lines.
#[derive(Debug)]
pub struct Program {
    process: Process,
    log: Arc<Mutex<String>>,
}

impl Program {
    /// Starts it. Its log is read all the time, so that it never blocks on a full pipe.
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command.stderr(Stdio::piped()));
        let stderr = process.child().stderr.take().expect("a pipe");
        let log: Arc<Mutex<String>> = Arc::default();
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = lines.lock();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { process, log }
    }

    /// Returns the process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it, which leaves it no time to clean up.
    pub fn kill(self) {
        drop(self.process);
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.lock().clone()
    }

    /// Waits for a line whose message contains this text, and returns the first.
    pub async fn line(&self, message: &str) -> Value {
        let state = || self.log();
        let wait = Wait::new(message).showing(&state);
        wait.value(async || {
            let log = self.log.lock();
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["message"].as_str().is_some_and(|it| it.contains(message)))
        })
        .await
    }

    /// Waits for a line whose message contains this text, and returns the address in it.
    pub async fn address(&self, message: &str) -> String {
        let line = self.line(message).await;
        line["address"].as_str().unwrap_or_else(|| panic!("no address: {line}")).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::Program;

    #[tokio::test]
    async fn a_line_of_the_log_is_waited_for_and_its_process_ends_with_the_test() {
        let script =
            r#"echo plain >&2; echo '{"message": "serving gRPC", "address": "1.2.3.4:5"}' >&2; exec sleep 600"#;
        let program = Program::start(Command::new("sh").args(["-c", script]));
        assert_eq!(program.address("serving").await, "1.2.3.4:5");
        assert!(program.log().starts_with("plain\n"));
        let entry = format!("/proc/{}", program.process().id());
        assert!(Path::new(&entry).exists());
        program.kill();
        assert!(!Path::new(&entry).exists());
    }
}
