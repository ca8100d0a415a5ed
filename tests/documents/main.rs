//! Checks texts against the code, without clusters: the names in documents and examples exist, recorded objects lead to
//! the right index, and the kept inputs of the fuzzers go through their targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod examples;
mod fuzz_corpus;
mod layers;
mod links;
mod metrics;
mod operation;
mod real_objects;
mod reference;
mod release;
mod rights;
mod security;
mod supply;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;
use serde_json::Value;

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
