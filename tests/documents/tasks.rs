//! The tasks of the justfile: CONTRIBUTING.md has the same commands, and each names packages, tests and scripts that
//! exist.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::{read, root};

/// The recipes by name, each with its command for the defaults of its parameters.
fn recipes() -> BTreeMap<String, String> {
    let justfile = read("justfile");
    let mut recipes = BTreeMap::new();
    let mut lines = justfile.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let Some(head) = lines.next() {
        let head = head.strip_suffix(':').unwrap_or_else(|| panic!("{head} begins no recipe"));
        let (name, parameter) = head.split_once(' ').unwrap_or((head, ""));
        let mut command = lines.next().and_then(|line| line.strip_prefix("    ")).unwrap().to_owned();
        if let Some((parameter, default)) = parameter.split_once('=') {
            command = command.replace(&format!("{{{{{parameter}}}}}"), default.trim_matches('\''));
        }
        assert!(!command.contains("{{"), "{name}: {command}");
        recipes.insert(name.to_owned(), command);
    }
    recipes
}

#[test]
fn contributing_has_the_command_of_each_recipe() {
    let document = read("CONTRIBUTING.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `just "));
    let documented: BTreeMap<_, _> = rows
        .map(|row| {
            let (name, rest) = row.split_once("` | `").unwrap();
            (name.to_owned(), rest.split_once("` | ").unwrap().0.to_owned())
        })
        .collect();
    let recipes = recipes();
    assert_eq!(documented, recipes);
    assert_eq!(recipes.len(), 10);
}

/// The folder of each member of the workspace by the name of its package.
fn packages() -> BTreeMap<String, PathBuf> {
    let manifest = read("Cargo.toml");
    let (_, members) = manifest.split_once("members = [").unwrap();
    let members = members.split_once(']').unwrap().0.split(',').map(|member| member.trim().trim_matches('"'));
    let members = members.filter(|member| !member.is_empty());
    let package = |member: &str| {
        let folder = root().join(member);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let (_, package) = manifest.split_once("[package]\n").unwrap();
        (package.split('"').nth(1).unwrap().to_owned(), folder)
    };
    members.map(package).collect()
}

fn is_program(folder: &str, name: &str) -> bool {
    [format!("{folder}/{name}.rs"), format!("{folder}/{name}/main.rs")].iter().any(|path| root().join(path).exists())
}

#[test]
fn each_recipe_names_packages_tests_and_scripts_that_there_are() {
    let manifest = read("Cargo.toml");
    let packages = packages();
    assert!(packages.contains_key("capi-autoscaler-provider"), "{packages:?}");
    for (recipe, command) in recipes() {
        let words: Vec<_> = command.split(' ').collect();
        for pair in words.windows(2) {
            let (flag, name) = (pair[0], pair[1]);
            let exists = match flag {
                "-p" => !command.starts_with("cargo ") || packages.contains_key(name),
                "--test" => is_program("tests", name),
                "--example" => is_program("examples", name),
                "--bench" => manifest.contains(&format!("[[bench]]\nname = \"{name}\"\n")),
                "--profile" => manifest.contains(&format!("\n[profile.{name}]\n")),
                "run" => !command.contains("cargo fuzz run") || is_program("crates/fuzz/fuzz_targets", name),
                _ => true,
            };
            assert!(exists, "{recipe}: there is no {name} for {flag}");
        }
        let paths =
            words.iter().filter(|word| word.starts_with(".ci/") || word.starts_with("crates/fuzz/corpus-kept/"));
        // The checks aren't part of each copy of the sources.
        for path in paths.filter(|path| !path.starts_with(".ci/") || root().join(".ci").exists()) {
            assert!(root().join(path).exists(), "{recipe}: there is no {path}");
        }
        assert!(["cargo ", ".ci/", "mkdir "].iter().any(|start| command.starts_with(start)), "{recipe}: {command}");
    }
}
