//! Checks that the program can be started without its command line.

use std::{collections::BTreeSet, fs};

use super::root;

/// Cargo holds the order of the crates; within the one that joins them, `app` must not know the command line.
#[test]
fn only_the_command_line_uses_clap() {
    let files = walkdir::WalkDir::new(root().join("src")).into_iter().map(|entry| entry.unwrap().into_path());
    let code = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let with_clap: BTreeSet<_> = code
        .filter(|path| {
            let source = fs::read_to_string(path).unwrap();
            source.contains("clap::") || source.contains("crate::cli")
        })
        .map(|path| path.strip_prefix(root().join("src")).unwrap().iter().next().unwrap().to_owned())
        .collect();
    assert_eq!(with_clap, BTreeSet::from(["cli".into(), "main.rs".into()]));
}
