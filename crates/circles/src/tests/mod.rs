//! Checks the search for circles on the repository.

#![allow(clippy::unwrap_used)]

mod made;

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    packages::{crates, files, root},
    source::{Module, read_crate},
    uses::{circles, uses},
};

fn modules(root_of_crate: &str) -> Vec<Module> {
    read_crate(&root().join(root_of_crate)).unwrap()
}

#[test]
fn no_file_uses_one_that_uses_it() {
    let found: Vec<_> = crates().iter().flat_map(|file| circles(&read_crate(file).unwrap())).collect();
    assert!(found.is_empty(), "a type that both files need belongs below both:\n{}", found.join("\n"));
}

/// A file outside the search could be part of a circle.
#[test]
fn each_rust_file_is_part_of_a_crate() {
    let canonical = |file: PathBuf| file.canonicalize().unwrap();
    let crates = crates();
    let read = crates.iter().flat_map(|file| read_crate(file).unwrap()).map(|module| canonical(module.file));
    let read: BTreeSet<_> = read.collect();
    let missing: Vec<_> = files().into_iter().map(canonical).filter(|file| !read.contains(file)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(read.len() > 1000, "{} files", read.len());
}

/// The uses of known files must be found: otherwise nothing was read.
#[test]
fn the_way_of_an_event_and_that_of_a_command_are_found() {
    let informer = uses(&modules("crates/shared-informer/src/lib.rs"));
    let informer = &informer["informer"];
    for (one, other) in [("reflector", "wire"), ("reflector", "store"), ("store", "slot"), ("delivery", "slot")] {
        assert!(informer[one].contains_key(other), "{one} uses {other}: {:?}", informer[one]);
    }
    let scale = uses(&modules("crates/scale/src/lib.rs"));
    for (one, other) in [("turns", "delete"), ("delete", "run"), ("run", "api"), ("outcome", "events")] {
        assert!(scale[""][one].contains_key(other), "{one} uses {other}: {:?}", scale[""][one]);
    }
    let index = uses(&modules("crates/index/src/lib.rs"));
    for (one, other) in [("apply", "live_state"), ("live_state", "group"), ("group", "version"), ("members", "resolve")]
    {
        assert!(index[""][one].contains_key(other), "{one} uses {other}: {:?}", index[""][one]);
    }
}
