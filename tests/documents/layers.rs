//! Checks what the page on the architecture says: `scale` alone writes to clusters, and its call paths lead to what is there.

use std::{collections::BTreeSet, fs};

use regex::Regex;
use walkdir::WalkDir;

use super::{read, root};

#[test]
fn each_file_of_a_call_path_has_the_item_that_is_named() {
    let page = read("docs/design/architecture.md");
    let mut count = 0;
    for row in page.lines().filter(|line| line.starts_with("| `") && line.contains(".rs` | `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (file, source) = (cells[0], read(cells[0].trim_matches('`')));
        for item in cells[1].split('`').skip(1).step_by(2) {
            let declared = ["fn", "struct", "const"].iter().any(|kind| source.contains(&format!("{kind} {item}")));
            assert!(declared, "{file} declares no {item}");
        }
        count += 1;
    }
    assert!(count > 20, "{count}");
    let path = Regex::new("`((?:crates|src)/[^`]+)`").unwrap();
    for path in path.captures_iter(&page).map(|found| found[1].to_owned()) {
        assert!(root().join(&path).exists(), "{path} isn't there");
    }
}

/// Returns the files of what ships whose text matches, tests and fakes left out.
fn files_with(pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let ships = |name: &String| !["fuzz", "sandbox", "simulation", "testkit", "whatif"].contains(&name.as_str());
    let folders = crates.filter(ships).map(|name| format!("crates/{name}/src")).chain(["src".to_owned()]);
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
        "crates/scale/src/events/mod.rs",
        "crates/scale/src/remembered.rs",
        "src/cli/check/groups.rs",
        "src/cli/check/rights.rs",
    ];
    assert_eq!(
        of_kube,
        expected.map(str::to_owned).into(),
        "the last two make a dry run and ask for the caller's rights, and change nothing"
    );
    assert!(read("src/cli/check/groups.rs").contains("PatchParams { dry_run: true, "));
    let of_http = files_with(r"\bMethod::(POST|PUT|PATCH|DELETE)\b|\bRequest::(post|put|patch|delete)\(");
    let expected = ["crates/change-stream/src/notify/delivery.rs", "src/cli/groups/client.rs"];
    assert_eq!(of_http, expected.map(str::to_owned).into(), "webhooks, and the log level of a running server");
}
