//! Checks that no two files of a module use each other, except a parent and its children: in the program and in each crate
//! that it is made and tested with. A circle between two modules counts as one between their files.

mod made;
mod source;
mod uses;

use std::path::{Path, PathBuf};

use self::{
    source::read_crate,
    uses::{circles, uses},
};
use super::root;

/// Returns the file of each crate from which its modules are reached.
fn roots(folder: &Path) -> Vec<PathBuf> {
    let source = folder.join("src");
    let files = walkdir::WalkDir::new(&source).sort_by_file_name();
    let files = files.into_iter().map(|entry| entry.unwrap().into_path());
    let is_root = |path: &PathBuf| {
        let place = path.strip_prefix(&source).unwrap();
        let binary = place.strip_prefix("bin").is_ok_and(|binary| {
            let is_file = binary.iter().count() == 1 && binary.extension().is_some_and(|extension| extension == "rs");
            is_file || (binary.iter().count() == 2 && binary.ends_with("main.rs"))
        });
        binary || ["lib.rs", "main.rs"].into_iter().any(|name| place == Path::new(name))
    };
    files.filter(is_root).collect()
}

/// Returns the folder of the program and those of the crates.
fn folders() -> Vec<PathBuf> {
    let crates = root().join("crates").read_dir().unwrap().map(|entry| entry.unwrap().path());
    crates.filter(|path| path.join("Cargo.toml").exists()).chain([root().to_owned()]).collect()
}

#[test]
fn no_file_uses_one_that_uses_it() {
    let mut found = vec![];
    for folder in folders() {
        let name = folder.strip_prefix(root()).unwrap().display().to_string();
        let roots = roots(&folder);
        assert!(!roots.is_empty(), "{name} has no source");
        let circles: Vec<_> = roots.iter().flat_map(|file| circles(file)).collect();
        found.extend(circles);
    }
    assert!(found.is_empty(), "a type that both files need belongs below both:\n{}", found.join("\n"));
}

/// The uses of known files must be found: otherwise nothing was read.
#[test]
fn the_way_of_an_event_and_that_of_a_command_are_found() {
    let informer = uses(&read_crate(&root().join("crates/shared-informer/src/lib.rs")));
    let informer = &informer["informer"];
    for (one, other) in [("reflector", "wire"), ("reflector", "store"), ("store", "slot"), ("delivery", "slot")] {
        assert!(informer[one].contains_key(other), "{one} uses {other}: {:?}", informer[one]);
    }
    let scale = uses(&read_crate(&root().join("crates/scale/src/lib.rs")));
    for (one, other) in [("turns", "delete"), ("delete", "run"), ("run", "api"), ("outcome", "events")] {
        assert!(scale[""][one].contains_key(other), "{one} uses {other}: {:?}", scale[""][one]);
    }
    let index = uses(&read_crate(&root().join("crates/index/src/lib.rs")));
    for (one, other) in [("apply", "live_state"), ("live_state", "group"), ("group", "version"), ("members", "resolve")]
    {
        assert!(index[""][one].contains_key(other), "{one} uses {other}: {:?}", index[""][one]);
    }
}
