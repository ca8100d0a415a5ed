//! Checks the threat model against the tests: each row of its tables names tests, and each named test runs.

use std::collections::BTreeSet;

use super::{documents, read, root};

/// The folders with tests.
const FOLDERS: [&str; 4] = ["src", "tests", "crates", "e2e"];

/// Returns the names of a source's tests that run by default.
fn tests_of(source: &str) -> Vec<String> {
    let (mut is_test, mut is_ignored, mut tests) = (false, false, Vec::new());
    for line in source.lines().map(str::trim) {
        if ["#[test]", "#[tokio::test", "#[rstest]"].iter().any(|attribute| line.starts_with(attribute)) {
            is_test = true;
        }
        is_ignored |= line.starts_with("#[ignore");
        let declared = ["fn ", "async fn ", "pub(crate) fn "].iter().find_map(|start| line.strip_prefix(start));
        if let Some((name, _)) = declared.and_then(|rest| rest.split_once('(')) {
            if is_test && !is_ignored {
                tests.push(name.to_owned());
            }
            (is_test, is_ignored) = (false, false);
        }
    }
    tests
}

/// Returns the names of the tests in these folders.
fn tests_in(folders: &[&str]) -> BTreeSet<String> {
    let entries = folders.iter().flat_map(|folder| walkdir::WalkDir::new(root().join(folder)));
    let files = entries.map(|entry| entry.unwrap().into_path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    sources.flat_map(|path| tests_of(&std::fs::read_to_string(path).unwrap())).collect()
}

/// Returns the names in a text that can only be tests': words joined by underscores, unlike metrics and labels.
fn named_tests(text: &str) -> Vec<&str> {
    let code = text.split('`').skip(1).step_by(2);
    let is_of_test = |name: &&str| {
        let words = name.split('_').count();
        words > 3
            && !name.starts_with("capi_autoscaler_provider_")
            && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    code.filter(is_of_test).collect()
}

#[test]
fn a_test_is_known_by_its_attribute_and_an_ignored_one_does_not_count() {
    let source = "#[test]\nfn one() {}\n#[rstest]\n#[case(1)]\n#[tokio::test]\nasync fn two(#[case] n: u8) {}\nfn three() {}\n\
                  #[test]\n#[ignore = \"slow\"]\nfn four() {}\n    #[test]\n    /// Text.\n    fn five() {}\n";
    assert_eq!(tests_of(source), ["one", "two", "five"]);
}

#[test]
fn each_test_that_a_document_names_is_there() {
    let tests = tests_in(&FOLDERS);
    assert!(tests.len() > 1_000, "{}", tests.len());
    let mut named = 0;
    // Labels of metrics look the same.
    for path in documents().into_iter().filter(|path| !path.ends_with("docs/reference/metrics.md")) {
        let document = std::fs::read_to_string(&path).unwrap();
        for name in named_tests(&document) {
            assert!(tests.contains(name), "{}: there is no test {name}", path.display());
            named += 1;
        }
    }
    assert!(named > 100, "{named}");
}

#[test]
fn each_threat_and_each_bound_is_shown_by_a_test() {
    let security = read("SECURITY.md");
    let (_, rest) = security.split_once("\n## Threats\n").unwrap();
    let (tables, _) = rest.split_once("\n## What to do\n").unwrap();
    let is_row = |line: &&str| line.starts_with("| ") && !line.ends_with("| shown by |");
    let rows: Vec<_> = tables.lines().filter(is_row).collect();
    assert!(rows.len() > 40, "{}", rows.len());
    for row in rows {
        let shown_by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<_> = shown_by.split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(named_tests(shown_by), names, "its last cell names tests and nothing else: {row}");
    }
}

/// Those of `e2e` need Go and a real API server.
#[test]
fn each_attack_is_shown_by_tests_that_need_no_cluster() {
    let security = read("SECURITY.md");
    let (_, rest) = security.split_once("\n## The attack suite\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert_eq!(rows.len(), 8, "{rows:?}");
    let tests = tests_in(&["src", "tests", "crates"]);
    for row in rows {
        let named = named_tests(row);
        assert!(!named.is_empty(), "{row}");
        for name in named {
            assert!(tests.contains(name), "{name} isn't among the tests of `cargo test`");
        }
    }
}
