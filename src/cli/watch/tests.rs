//! Tests of `watch` as a whole, against the sandbox's API server.

mod changing;
mod ending;
mod fake;
mod lookup;
mod starting;

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use clap::Parser as _;
use serde_json::{Value, json};
use shared_informer::Settings;
use tokio::sync::watch;

use super::{Watch, WatchConfig};
use crate::cli::{Cli, Command, UsageError};
use change_stream::{notify, watch::Tempo};
use service::listen::Shutdown;

use self::fake::{CAPI, Fake, definition};

/// Longer than any test should take.
const PATIENCE: Duration = Duration::from_secs(20);

fn config(flags: &[&str]) -> Result<WatchConfig, UsageError> {
    let cli = Cli::try_parse_from(["capi-autoscaler-provider", "watch"].iter().chain(flags)).unwrap();
    let Command::Watch(args) = cli.command else { panic!("it isn't watch") };
    WatchConfig::try_from(*args)
}

fn quick() -> Tempo {
    let brief = Duration::from_millis(20);
    Tempo {
        informers: Settings { backoff_min: brief, backoff_max: brief, ..Settings::default() },
        ask: brief,
        notify: notify::Pace {
            gather: Duration::ZERO,
            interval: Duration::ZERO,
            backoff: brief,
            ..notify::Pace::default()
        },
    }
}

#[derive(Clone)]
struct Printed(Arc<watch::Sender<String>>);

impl Default for Printed {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(String::new())))
    }
}

impl Write for Printed {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.send_modify(|printed| printed.push_str(str::from_utf8(text).unwrap()));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Printed {
    /// Waits for this many lines, and returns them.
    async fn lines(&self, count: usize) -> Vec<String> {
        let mut printed = self.0.subscribe();
        let enough = printed.wait_for(|printed| printed.lines().count() >= count);
        let printed = tokio::time::timeout(PATIENCE, enough).await;
        let printed = printed.unwrap_or_else(|_| panic!("{count} lines, not {:?}", self.0.borrow())).unwrap();
        printed.lines().map(str::to_owned).collect()
    }

    async fn json(&self, count: usize) -> Vec<Value> {
        self.lines(count).await.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Waits until the handlers have received all first lists: changes before that are merged into them.
async fn all_reported(watch: &Watch) {
    watch.stream.factory().wait_for_sync(PATIENCE).await.unwrap();
    let is_reported =
        || watch.stream.factory().statuses().iter().flat_map(|it| &it.handlers).all(|handler| handler.synced);
    let reported = async {
        while !is_reported() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.unwrap();
}

/// A running watch of a fake API server, in JSON unless the flags say otherwise.
struct Scene {
    watch: Watch,
    printed: Printed,
}

impl Scene {
    async fn start(fake: &Fake, flags: &[&str]) -> Self {
        let printed = Printed::default();
        let watch = begin(fake, flags, printed.clone()).await.unwrap();
        let scene = Self { watch, printed };
        // Changes from here on aren't part of a first list.
        for informer in scene.watch.stream.factory().statuses() {
            assert!(!informer.stopped);
        }
        all_reported(&scene.watch).await;
        scene
    }

    async fn end(self) -> anyhow::Result<()> {
        let shutdown = Shutdown::new();
        shutdown.request();
        self.watch.finish(&shutdown).await
    }
}

async fn begin(fake: &Fake, flags: &[&str], out: impl Write + Send + 'static) -> anyhow::Result<Watch> {
    let kubeconfig = fake.kubeconfig();
    let own = ["-o", "json", "--management-kubeconfig", &kubeconfig];
    let config = config(&[&own[..if flags.contains(&"-o") { 0 } else { 2 }], &own[2..], flags].concat()).unwrap();
    Watch::begin(config, out, quick()).await
}

/// Returns the error of the start.
async fn refusal(fake: &Fake, flags: &[&str]) -> String {
    match begin(fake, flags, Printed::default()).await {
        Ok(_) => panic!("it starts"),
        Err(error) => format!("{error:#}"),
    }
}

/// Returns type, kind and name of each line.
fn shorts(lines: &[Value]) -> Vec<String> {
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    lines.iter().map(|line| format!("{} {} {}", text(line, "type"), text(line, "kind"), text(line, "name"))).collect()
}
