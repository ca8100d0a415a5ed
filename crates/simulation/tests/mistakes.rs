//! Each mistake of `crates/simulation/mistakes` can still be put back, so that the table of them in
//! docs/design/simulation.md can't come to say what isn't so any more.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the workspace's directory")
}

/// Returns the patches with their texts.
fn patches() -> Result<Vec<(PathBuf, String)>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(root()?.join("crates/simulation/mistakes"))? {
        let path = entry?.path();
        assert!(path.extension().is_some_and(|extension| extension == "patch"), "{} is no patch", path.display());
        let text = fs::read_to_string(&path)?;
        patches.push((path, text));
    }
    Ok(patches)
}

fn name(path: &Path) -> &str {
    path.file_stem().and_then(|name| name.to_str()).unwrap_or_default()
}

#[test]
fn each_mistake_applies_to_the_tree() -> Result<()> {
    for (path, _) in patches()? {
        let output = Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(root()?).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: make it anew for the code as it is now: {error}", path.display());
    }
    Ok(())
}

#[test]
fn each_mistake_says_what_it_is_and_is_small() -> Result<()> {
    let patches = patches()?;
    let mut numbers = BTreeSet::new();
    for (path, text) in &patches {
        let name = name(path);
        let (head, diff) = text.split_once("\ndiff --git ").with_context(|| format!("{name} has no diff"))?;
        let mut head = head.lines();
        let what = head.next().unwrap_or_default();
        assert!(
            what.ends_with('.') && what.starts_with(char::is_uppercase),
            "{name} begins with no sentence: {what:?}"
        );
        for line in head.filter(|line| !line.is_empty()) {
            assert!(line.starts_with("Safe now: "), "{name}: {line:?}");
        }
        let number = name.split('-').next().unwrap_or_default();
        assert!(number.parse::<u32>().is_ok() && numbers.insert(number), "{name} has no number of its own");
        let changed = diff
            .lines()
            .filter(|line| line.starts_with(['+', '-']) && !line.starts_with("+++ ") && !line.starts_with("--- "));
        assert!(changed.count() <= 16, "{name} is more than one mistake");
        for file in diff.lines().filter_map(|line| line.strip_prefix("+++ b/")) {
            let parts = [
                "src",
                "crates/app/src",
                "crates/cluster/src",
                "crates/connect/src",
                "crates/service/src",
                "crates/index/src",
                "crates/rules/src",
                "crates/scale/src",
                "crates/shared-informer/src",
                "crates/page/src/state",
            ];
            let is_program = parts.iter().any(|part| Path::new(file).starts_with(part));
            assert!(is_program, "{name} changes {file}, which isn't the program");
        }
    }
    assert!(patches.len() >= 42, "{} mistakes", patches.len());
    Ok(())
}
