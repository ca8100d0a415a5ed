//! Checks the order of the crates where Cargo can't: the rules need no runtime, nothing of tests ships, the command line
//! alone has clap, and `scale` alone writes to clusters. The walks of the page on the architecture lead to what is there.

use std::{collections::BTreeSet, env, process::Command};

use regex::Regex;
use walkdir::WalkDir;

use super::{read, root};

/// Returns a line for each crate that these packages are built from, by `cargo tree`.
fn tree(packages: &[&str], format: &str) -> Vec<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "--locked", "--offline", "--edges=normal", "--prefix=none", "--format", format]);
    let output =
        command.args(packages.iter().flat_map(|package| ["-p", package])).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the crates of the workspace that the program is built from, itself left out.
fn shipped() -> BTreeSet<String> {
    let ours = format!("({}/crates/", root().display());
    let tree = tree(&[env!("CARGO_PKG_NAME")], "{p}");
    let ours = tree.iter().filter_map(|line| line.split_once(&ours)?.1.split(')').next());
    let shipped: BTreeSet<_> = ours.map(str::to_owned).collect();
    assert!(shipped.contains("scale"), "{shipped:?}");
    shipped
}

#[test]
fn the_rules_depend_on_no_runtime_and_no_client() {
    let waits = ["tokio", "hyper", "tower", "tonic", "kube", "kube-client", "kube-runtime"];
    let tree = tree(&["rules"], "{p}");
    let found: Vec<_> = tree.iter().filter(|line| waits.contains(&line.split(' ').next().unwrap())).collect();
    assert!(found.is_empty() && tree.len() > 10, "cargo tree -i says by which way they came: {found:?}");
}

#[test]
fn no_helpers_of_tests_are_in_what_ships() {
    let of_tests =
        |line: &&String| line.starts_with("sandbox ") || line.starts_with("testkit ") || line.contains("test-support");
    let tree = tree(&[env!("CARGO_PKG_NAME")], "{p} {f}");
    let found: Vec<_> = tree.iter().filter(of_tests).collect();
    assert!(found.is_empty() && tree.len() > 100, "turn test-support on in dev-dependencies alone: {found:?}");
}

#[test]
fn only_the_command_line_uses_clap() {
    let shipped = shipped();
    let packages: Vec<_> = shipped.iter().map(String::as_str).collect();
    let found: Vec<_> = tree(&packages, "{p}").into_iter().filter(|line| line.starts_with("clap ")).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn each_file_of_a_walk_has_the_item_that_is_named() {
    let page = read("docs/design/architecture.md");
    let (_, walks) = page.split_once("\n## Walks\n").unwrap();
    let mut count = 0;
    for row in walks.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (file, source) = (cells[0], read(cells[0].trim_matches('`')));
        for item in cells[1].split('`').skip(1).step_by(2) {
            let declared = ["fn", "struct", "const"].iter().any(|kind| source.contains(&format!("{kind} {item}")));
            assert!(declared, "{file} declares no {item}");
        }
        count += 1;
    }
    assert!(count > 20, "{count}");
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
    let expected = ["crates/change-stream/src/notify/delivery.rs", "src/cli/groups/client.rs"];
    assert_eq!(of_http, expected.map(str::to_owned).into(), "webhooks, and the log level of a running server");
}
