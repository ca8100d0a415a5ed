//! Checks what Cargo can't hold: the program can be started without its command line, and `scale` alone writes to
//! clusters.

use std::collections::BTreeSet;

use regex::Regex;
use walkdir::WalkDir;

use super::{architecture::shipped, read, root};

/// Cargo holds the order of the crates; of those that ship, the command line alone may have clap.
#[test]
fn only_the_command_line_uses_clap() {
    let uses_clap = |manifest: &str| {
        read(manifest)
            .split("\n[dev-dependencies]")
            .next()
            .unwrap_or_default()
            .lines()
            .any(|line| line.starts_with("clap"))
    };
    assert!(uses_clap("Cargo.toml"));
    for name in shipped() {
        assert!(!uses_clap(&format!("crates/{name}/Cargo.toml")), "{name} depends on clap");
    }
}

/// Returns the files of what ships whose text matches, tests and fakes left out.
fn files_with(pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    let folders = shipped().into_iter().map(|name| format!("crates/{name}/src")).chain(["src".to_owned()]);
    let is_of_tests = Regex::new(r"/(tests|fake|testing)(/|\.rs$)").unwrap();
    let mut files = BTreeSet::new();
    for folder in folders {
        for entry in WalkDir::new(root().join(&folder)) {
            let entry = entry.unwrap();
            let path = entry.path().strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let is_source = entry.path().extension().is_some_and(|it| it == "rs") && !is_of_tests.is_match(&path);
            if is_source && pattern.is_match(read(&path).split("#[cfg(test)]\nmod tests {").next().unwrap()) {
                files.insert(path);
            }
        }
    }
    files
}

#[test]
fn scale_alone_writes_to_clusters() {
    let of_kube = files_with(r"\b(Post|Patch|Delete)Params\b");
    let expected = [
        "crates/scale/src/api.rs",
        "crates/scale/src/events/post.rs",
        "src/cli/check/reviews.rs",
        "src/cli/check/sizes.rs",
    ];
    assert_eq!(
        of_kube,
        expected.map(str::to_owned).into(),
        "the last two ask for the caller's rights and make a dry run, and change nothing"
    );
    assert!(read("src/cli/check/sizes.rs").contains("PatchParams { dry_run: true, "));
    let of_http = files_with(r"\bMethod::(POST|PUT|PATCH|DELETE)\b|\bRequest::(post|put|patch|delete)\(");
    let expected = ["crates/change-stream/src/notify/post.rs", "src/cli/groups/client.rs"];
    assert_eq!(of_http, expected.map(str::to_owned).into(), "webhooks, and the log level of a running server");
}
