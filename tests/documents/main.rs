//! Checks texts against the code, without clusters: the names in documents and examples exist, recorded objects lead to
//! the right index, and the kept inputs of the fuzzers go through their targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod annotations;
mod examples;
mod failures;
mod fleet;
mod fuzz_corpus;
mod layers;
mod links;
mod metrics;
mod operation;
mod prices;
mod readme;
mod real_objects;
mod release;
mod security;
mod supply;
mod watch;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use app::{App, Config};
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use serde::Deserialize as _;
use serde_json::Value;
use service::listen::Shutdown;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the Markdown documents of a folder.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The parts of `docs/`, in the order in which a reader meets them.
const PARTS: [&str; 4] = ["tutorial", "how-to", "reference", "design"];

fn documents() -> Vec<PathBuf> {
    let parts = PARTS.map(|part| format!("docs/{part}"));
    ["", "docs", "e2e"].into_iter().chain(parts.iter().map(String::as_str)).flat_map(markdown).collect()
}

/// Returns the YAML documents of an example.
fn yaml(path: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(&read(path)).map(|document| Value::deserialize(document).unwrap()).collect()
}

/// Returns the code in the first cells of a document's tables.
fn first_cells(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// Starts a server without an API server, which still has its metrics and the prices of its file.
async fn offline_server(more: &[&str]) -> (App, Shutdown) {
    let flags: Vec<_> = ["--all-clusters"].into_iter().chain(more.iter().copied()).collect();
    let (_files, config) = offline(&flags);
    let shutdown = Shutdown::new();
    (App::start(config, shutdown.clone()).await.unwrap(), shutdown)
}

/// Returns the configuration of a server without an API server, and the directory of its kubeconfig.
fn offline(more: &[&str]) -> (TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("config");
    fs::write(&kubeconfig, sandbox::kubeconfig::kubeconfig("https://127.0.0.1:1")).unwrap();
    let flags = ["x", "serve", "--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];
    let kubeconfig = format!("--management-kubeconfig={}", kubeconfig.display());
    let flags = flags.into_iter().chain([kubeconfig.as_str()]).chain(more.iter().copied());
    let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("it isn't serve") };
    (dir, Config::try_from(*args).unwrap())
}
