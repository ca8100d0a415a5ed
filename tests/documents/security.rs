//! Checks the threat model against the tests: each row of its tables names files with tests.

use std::{fs, path::Path};

use super::{documents, read, root};

/// The folders whose files documents name by their whole path.
const FOLDERS: [&str; 6] = ["src/", "tests/", "crates/", "e2e/", "benches/", "examples/"];

/// Returns the Rust files that a text names.
fn files(text: &str) -> Vec<&str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|name| {
        Path::new(name).extension().is_some_and(|it| it == "rs")
            && FOLDERS.iter().any(|folder| name.starts_with(folder))
    })
    .collect()
}

fn has_tests(source: &str) -> bool {
    let is_test = |line: &str| ["#[test]", "#[tokio::test", "#[rstest]"].iter().any(|it| line.trim().starts_with(it));
    source.lines().any(is_test)
}

#[test]
fn each_source_file_that_a_document_names_is_there() {
    for path in documents() {
        for name in files(&fs::read_to_string(&path).unwrap()) {
            assert!(root().join(name).is_file(), "{}: there is no {name}", path.display());
        }
    }
}

#[test]
fn each_threat_and_each_bound_names_files_with_tests() {
    let security = read("SECURITY.md");
    let (_, rest) = security.split_once("\n## Threats\n").unwrap();
    let (tables, _) = rest.split_once("\n## What to do\n").unwrap();
    let rows: Vec<_> = tables.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| tests |")).collect();
    assert!(rows.len() > 40, "{}", rows.len());
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let named: Vec<_> = tests.split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(files(tests), named, "its last cell names files and nothing else: {row}");
        for name in named {
            assert!(has_tests(&read(name)), "{name} has no tests: {row}");
        }
    }
}
