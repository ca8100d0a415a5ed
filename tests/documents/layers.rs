//! Checks the order of the files of `crates/scale`, `crates/index`, `crates/page` and the informer: no two use each
//! other, except a parent and its children. And checks that the program can be started without its command line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::root;

/// Returns the sources of a folder's modules by name, without their tests.
fn modules(folder: &Path) -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if ["lib", "tests", "fake"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            let texts = modules_of_folder(&path);
            modules.entry(name).or_insert_with(String::new).push_str(&texts);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let text = without_tests(&text).replace("crate::", "super::");
            modules.entry(name).or_insert_with(String::new).push_str(&text);
        }
    }
    modules
}

/// Returns the sources of a folder, in which `super::super` is the parent of the whole.
fn modules_of_folder(folder: &Path) -> String {
    let mut texts = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = without_tests(&text).to_owned();
        let outer = if name == "mod" { text } else { text.replace("use super::", "use inner::") };
        texts.push_str(&outer.replace("crate::", "super::"));
    }
    texts
}

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\n#[allow").next().unwrap_or(text).split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Returns the siblings that a source uses: `super::name` and the names in the braces of `super::{…}`.
fn used(text: &str, names: &BTreeSet<&str>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in text.match_indices("super::") {
        let rest = &text[at + "super::".len()..];
        let list = match rest.strip_prefix('{') {
            None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned(),
            Some(braces) => outermost(braces),
        };
        let words = list.split(|c: char| !c.is_alphanumeric() && c != '_');
        used.extend(words.filter(|word| names.contains(word)).map(str::to_owned));
    }
    used
}

/// Returns the names at the outermost level of a list in braces.
fn outermost(braces: &str) -> String {
    let (mut depth, mut names) = (0_u32, String::new());
    for item in braces.chars() {
        match item {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            item if depth == 0 => names.push(item),
            _ => {}
        }
    }
    // Of `api::Api` the first segment is the sibling.
    names.split(',').map(|item| item.trim().split("::").next().unwrap_or_default().to_owned() + ",").collect()
}

/// Returns a cycle of uses, if there is one.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(uses: &BTreeMap<String, BTreeSet<String>>, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let last = way.last().unwrap().clone();
        for next in uses.get(&last).into_iter().flatten() {
            if let Some(begin) = way.iter().position(|name| name == next) {
                way.drain(..begin);
                return true;
            }
            if done.contains(next) {
                continue;
            }
            way.push(next.clone());
            if visit(uses, way, done) {
                return true;
            }
            way.pop();
        }
        done.insert(last);
        false
    }
    let mut done = BTreeSet::new();
    for name in uses.keys() {
        let mut way = vec![name.clone()];
        if !done.contains(name) && visit(uses, &mut way, &mut done) {
            return Some(way);
        }
    }
    None
}

/// Returns the siblings that each module uses.
fn uses(modules: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeSet<_> = modules.keys().map(String::as_str).collect();
    let uses = modules.iter().map(|(name, text)| {
        let mut used = used(text, &names);
        used.remove(name);
        (name.clone(), used)
    });
    uses.collect()
}

#[test]
fn no_file_of_the_informer_uses_one_that_uses_it() {
    let uses = uses(&modules(&root().join("crates/shared-informer/src/informer")));
    assert_eq!(circle(&uses), None);
    // The way of an event must be found: otherwise nothing was read.
    for (one, other) in [("reflector", "wire"), ("reflector", "store"), ("store", "slot"), ("delivery", "slot")] {
        assert!(uses[one].contains(other), "{one} uses {other}: {:?}", uses[one]);
    }
}

#[test]
fn no_file_of_scale_uses_one_that_uses_it() {
    let modules = modules(&root().join("crates/scale/src"));
    let uses = uses(&modules);
    assert_eq!(circle(&uses), None);
    // A command's path through the modules must be found: otherwise nothing was read.
    for (one, other) in [("turns", "delete"), ("delete", "run"), ("run", "api"), ("outcome", "events")] {
        assert!(uses[one].contains(other), "{one} uses {other}: {:?}", uses[one]);
    }
}

#[test]
fn no_file_of_the_index_uses_one_that_uses_it() {
    let uses = uses(&modules(&root().join("crates/index/src")));
    assert_eq!(circle(&uses), None);
    // A change's path through the modules must be found: otherwise nothing was read.
    for (one, other) in [("apply", "live_state"), ("live_state", "group"), ("group", "version"), ("members", "resolve")]
    {
        assert!(uses[one].contains(other), "{one} uses {other}: {:?}", uses[one]);
    }
}

#[test]
fn no_file_of_the_page_uses_one_that_uses_it() {
    let uses = uses(&modules(&root().join("crates/page/src")));
    assert_eq!(circle(&uses), None);
    // The path of a listing must be found: otherwise nothing was read.
    for (one, other) in [("overview", "listing"), ("listing", "view"), ("view", "condition")] {
        assert!(uses[one].contains(other), "{one} uses {other}: {:?}", uses[one]);
    }
}

#[test]
fn a_circle_is_found_and_named() {
    let names = BTreeSet::from(["a", "b", "c"]);
    let texts = [("a", "use super::{b::B, x::{c}};"), ("b", "use super::c::C;"), ("c", "fn f() { super::a::g() }")];
    let uses = texts.iter().map(|(name, text)| ((*name).to_owned(), used(text, &names))).collect();
    assert_eq!(circle(&uses), Some(["a", "b", "c"].map(str::to_owned).to_vec()));
}

/// Cargo holds the order of the crates; within the one that joins them, `app` must not know the command line.
#[test]
fn only_the_command_line_uses_clap() {
    let files = walkdir::WalkDir::new(root().join("src")).into_iter().map(|entry| entry.unwrap().into_path());
    let code = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let with_clap: BTreeSet<_> = code
        .filter(|path| {
            let source = fs::read_to_string(path).unwrap();
            source.contains("clap::") || source.contains("crate::cli")
        })
        .map(|path| path.strip_prefix(root().join("src")).unwrap().iter().next().unwrap().to_owned())
        .collect();
    assert_eq!(with_clap, BTreeSet::from(["cli".into(), "main.rs".into()]));
}
