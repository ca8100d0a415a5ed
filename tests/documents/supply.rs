//! Compares builds, tests and releases with the documents and with each other. It must only read files.

use std::{collections::BTreeSet, fs};

use super::{read, root};

/// Returns the cells of a table's row, without the backticks of code.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()
}

/// Returns the text between the first occurrence of `before` and the next `after`.
fn between<'text>(text: &'text str, before: &str, after: &str) -> &'text str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("there is no {before:?}"));
    rest.split_once(after).unwrap_or_else(|| panic!("there is no {after:?} behind {before:?}")).0
}

#[test]
fn the_versions_that_ran_are_those_that_are_pinned() {
    let document = read("docs/reference/versions.md");
    let pinned = read("e2e/go.mod");
    let table = between(&document, "## Tested versions", "\n## ");
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| ") && line.contains('`')).map(cells).collect();
    let modules: BTreeSet<_> = rows.iter().map(|row| row[1]).collect();
    let expected = ["go.etcd.io/etcd/server/v3", "k8s.io/kubernetes", "sigs.k8s.io/cluster-api"];
    assert_eq!(modules, expected.into_iter().collect());
    for row in rows {
        let (module, version) = (row[1], row[2]);
        let wanted = format!("{module} {version}");
        let found = pinned.lines().any(|line| {
            line.trim().trim_start_matches("require ").split(" //").next().is_some_and(|line| line == wanted)
        });
        assert!(found, "docs/reference/versions.md names {wanted}, which e2e/go.mod doesn't require");
    }
}

#[test]
fn every_variable_of_in_tree_has_the_flag_that_moving_over_names() {
    let document = read("docs/how-to/migration.md");
    let flags = read("docs/reference/flags.md");
    let rows: Vec<_> = document.lines().filter(|line| line.starts_with("| `CAPI_")).map(cells).collect();
    assert_eq!(rows.len(), 3, "in-tree reads three variables: {rows:?}");
    for row in rows {
        let (variable, flag) = (row[0], row[1]);
        let known = flags
            .lines()
            .any(|line| line.starts_with(&format!("| `{flag} ")) && line.contains(&format!("Variable: `{variable}`")));
        assert!(known, "{variable} isn't the variable of {flag}");
    }
}

#[test]
fn the_image_is_built_from_every_member_of_the_workspace() {
    let ignore = read(".dockerignore");
    let manifest = read("Cargo.toml");
    let members = between(&manifest, "members = [", "]").split(',').map(|member| member.trim().trim_matches('"'));
    let members: Vec<_> = members.filter(|member| !["", "."].contains(member)).collect();
    assert!(members.contains(&"crates/sandbox"), "{members:?}");
    for member in members {
        let (folder, _) = member.split_once('/').unwrap_or((member, ""));
        let named = [format!("!/{folder}"), format!("!/{member}/Cargo.toml")];
        let read = ignore.lines().any(|line| named.iter().any(|named| line == named));
        assert!(read, ".dockerignore keeps {member} from the build, which needs the manifest of every member");
    }
}

#[test]
fn every_action_is_pinned_by_its_commit_and_names_its_version() {
    for entry in fs::read_dir(root().join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let (path, workflow) = (path.display(), fs::read_to_string(&path).unwrap());
        let used = workflow.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "));
        for action in used.filter(|action| !action.starts_with("./")) {
            let (_, pin) = action.split_once('@').unwrap_or_else(|| panic!("{path}: {action} has no version"));
            let (commit, version) =
                pin.split_once(" # v").unwrap_or_else(|| panic!("{path}: {action}: say which version"));
            assert!(commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{path}: {action}");
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{path}: {action}");
        }
    }
}

/// A size that wraps around would be written to a cluster.
#[test]
fn arithmetic_is_checked_for_overflow_in_what_is_released() {
    let manifest = read("Cargo.toml");
    let profile = |name: &str| between(&manifest, &format!("\n[profile.{name}]\n"), "\n[").to_owned();
    assert!(profile("release").contains("\noverflow-checks = true"));
    let image = profile("dist");
    assert!(image.contains("inherits = \"release\"") && !image.contains("overflow-checks"), "{image}");
    assert!(read("Dockerfile").contains("--profile dist"));
}
