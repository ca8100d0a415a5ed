//! The page on the architecture against the code: its crates and their uses, and the files of its walks.

use std::{collections::BTreeSet, env, process::Command};

use regex::Regex;
use serde_json::Value;

use super::{read, root};

const PAGE: &str = "docs/design/architecture.md";

/// The cells of a document's table rows whose first cell is code.
fn rows(document: &str) -> Vec<Vec<&str>> {
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The code in a cell.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn section<'text>(document: &'text str, title: &str) -> &'text str {
    let (_, rest) = document.split_once(&format!("\n## {title}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The crates of the workspace that a package uses: those of its `[dependencies]` without the optional ones, which are
/// for tests.
fn uses(folder: &str) -> BTreeSet<String> {
    let manifest = read(&format!("{folder}/Cargo.toml"));
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default().split("\n[").next().unwrap();
    let dependency = Regex::new(r"(?m)^([a-z][\w-]*)(?:\.workspace)? = (.*)$").unwrap();
    let used = dependency.captures_iter(section).filter(|found| !found[2].contains("optional = true"));
    used.map(|found| found[1].to_owned()).filter(|name| root().join("crates").join(name).exists()).collect()
}

/// The crates that the program is built from, itself left out.
pub(crate) fn shipped() -> BTreeSet<String> {
    let mut shipped = BTreeSet::new();
    let mut next: Vec<_> = uses(".").into_iter().collect();
    while let Some(name) = next.pop() {
        next.extend(uses(&format!("crates/{name}")));
        shipped.insert(name);
        next.retain(|name| !shipped.contains(name));
    }
    shipped
}

/// The rows of the page's table of crates, and those of the table of members that don't ship.
fn tables(document: &str) -> [Vec<Vec<&str>>; 2] {
    let (crates, others) = section(document, "Crates").split_once("\n| member |").unwrap();
    [rows(crates), rows(others)]
}

#[test]
fn the_page_lists_each_crate_that_ships_with_the_crates_that_it_uses() {
    let document = read(PAGE);
    let [crates, _] = tables(&document);
    let shipped = shipped();
    let mut listed = BTreeSet::new();
    for row in crates {
        let name = row[0].trim_matches('`');
        // The module of the crate at the top.
        if row[2] != "all below" {
            let documented: BTreeSet<_> = code(row[2]).map(str::to_owned).collect();
            assert_eq!(documented, uses(&format!("crates/{name}")), "{name}");
            assert!(listed.insert(name.to_owned()), "{name} is there twice");
        }
    }
    assert_eq!(listed, shipped);
}

#[test]
fn a_crate_stands_above_those_that_it_uses_and_all_members_are_listed() {
    let document = read(PAGE);
    let [crates, others] = tables(&document);
    let names: Vec<_> = crates.iter().map(|row| row[0].trim_matches('`')).collect();
    for (place, row) in crates.iter().enumerate() {
        for used in code(row[2]) {
            assert!(names[place..].contains(&used), "{used} is above {}, which uses it", names[place]);
        }
    }

    let manifest = read("Cargo.toml");
    let members = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let members = members.split('"').skip(1).step_by(2).filter(|member| *member != ".");
    let members: BTreeSet<_> = members.map(|member| member.trim_start_matches("crates/")).collect();
    let listed = names.into_iter().chain(others.iter().map(|row| row[0].trim_matches('`')));
    assert_eq!(listed.filter(|name| *name != "cli").collect::<BTreeSet<_>>(), members);
}

/// The programs and libraries that `cargo build` builds without a selection of packages.
#[test]
fn a_build_without_options_is_the_program_alone() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--locked", "--format-version=1"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let chosen = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter().filter(|package| chosen.contains(&package["id"]));
    let targets: Vec<_> = packages.flat_map(|package| package["targets"].as_array().unwrap()).collect();
    let of_kind = |kind: &str| -> BTreeSet<_> {
        let targets = targets.iter().filter(|target| target["kind"].as_array().unwrap().contains(&kind.into()));
        targets.map(|target| target["name"].as_str().unwrap().replace('_', "-")).collect()
    };
    let program = env!("CARGO_PKG_NAME").to_owned();
    assert_eq!(of_kind("bin"), [program.clone()].into());
    assert_eq!(of_kind("lib"), shipped().into_iter().chain([program]).collect());
}

#[test]
fn each_file_of_a_walk_has_the_item_that_is_named_and_is_entered_once() {
    let document = read(PAGE);
    let walks: Vec<_> = section(&document, "Walks").split("\n**").skip(1).collect();
    assert_eq!(walks.len(), 3);
    for walk in walks {
        let mut entered = BTreeSet::new();
        for row in rows(walk) {
            let (file, items) = (row[0].trim_matches('`'), row[1]);
            let source = read(file);
            for item in code(items) {
                let declared = ["fn", "struct", "const"].iter().any(|kind| source.contains(&format!("{kind} {item}")));
                assert!(declared, "{file} declares no {item}");
            }
            assert!(entered.insert(file), "{file} is entered twice");
        }
        assert!(entered.len() > 8, "{entered:?}");
    }
}

#[test]
fn the_page_is_one_page() {
    let document = read(PAGE);
    let words = document.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    assert!(words <= 900, "{words} words");
}
