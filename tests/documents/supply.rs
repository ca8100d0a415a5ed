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

/// Returns the workflows by name. Without them in the sources there is nothing to compare.
fn workflows() -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(root().join(".github/workflows")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn the_versions_that_ran_are_those_that_are_pinned() {
    let document = read("docs/reference/versions.md");
    let pinned = read("e2e/go.mod");
    let table = between(&document, "## What the tests run", "\n## ");
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
fn the_migration_guide_removes_the_annotation_that_the_program_writes() {
    let document = read("docs/how-to/migration.md");
    let (_, way_back) = document.split_once("## The way back").unwrap();
    let key = rules::capi::Keys::default().delete_machine;
    assert!(way_back.contains(&format!("{key}-")), "nothing takes {key} off");
}

#[test]
fn image_and_workflows_are_built_with_one_rust_that_is_new_enough() {
    let image = read("Dockerfile");
    let version = between(&image, "rust:", "-");
    let numbers = |text: &str| text.split('.').map(|number| number.parse::<u32>().unwrap()).collect::<Vec<_>>();
    let manifest = read("Cargo.toml");
    let oldest = between(&manifest, "rust-version = \"", "\"");
    assert!(numbers(version) >= numbers(oldest), "the image is built with Rust {version}, older than {oldest}");
    for (path, workflow) in workflows() {
        for line in workflow.lines().filter_map(|line| line.trim().strip_prefix("RUST_VERSION: ")) {
            assert_eq!(line.trim_matches('"'), version, "{path} and Dockerfile name two versions of Rust");
        }
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
    for (path, workflow) in workflows() {
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

#[test]
fn cargo_deny_is_of_one_version_in_ci_and_in_the_workflow() {
    let Ok(ci) = fs::read_to_string(root().join(".ci/run")) else { return };
    let version = between(&ci, "deny_version=", "\n");
    for (path, workflow) in workflows() {
        for line in workflow.lines().filter(|line| line.contains("cargo install cargo-deny")) {
            assert!(line.ends_with(&format!("--version {version}")), "{path}: {line}, and .ci/run has {version}");
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

/// A profile inherits the levels of crates from `release`.
#[test]
fn crates_are_optimized_less_in_the_first_build_alone() {
    // A table ends with an empty line, the last one too.
    let manifest = read("Cargo.toml") + "\n";
    let crates_at = |level: u8, profile: &str| -> BTreeSet<String> {
        let table = between(&manifest, &format!("\n[profile.{profile}.package]\n"), "\n\n").lines();
        table.filter_map(|line| line.strip_suffix(&format!(" = {{ opt-level = {level} }}"))).map(Into::into).collect()
    };
    let lowered = crates_at(1, "release");
    assert!(lowered.contains("sandbox"), "{lowered:?}");
    // The image has neither, and only the first command builds the demonstration.
    for (profile, absent) in
        [("dist", &["demonstration", "sandbox"][..]), ("bench", &["demonstration"]), ("simulation", &["demonstration"])]
    {
        let optimized = crates_at(3, profile);
        let missing: Vec<_> = lowered.difference(&optimized).filter(|name| !absent.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?} are set back to level 3 in the profile {profile}");
    }
}

#[test]
fn the_changelog_has_a_section_for_this_version_below_what_is_unreleased() {
    let changelog = read("CHANGELOG.md");
    let sections: Vec<_> = changelog.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections[0], "[Unreleased]");
    let (version, date) = sections[1].split_once(" - ").unwrap();
    assert_eq!(version, format!("[{}]", env!("CARGO_PKG_VERSION")));
    let is_date = date.len() == 10 && date.chars().all(|c| c == '-' || c.is_ascii_digit());
    assert!(is_date || date == "not released yet", "{date}");
}
