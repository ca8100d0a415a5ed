//! Finds the files of each module that use each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source::Module;

/// The uses by each child of a module: the used child, and the places of the uses.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Returns the circles in each module of a crate. Each circle is written as its uses, one per line.
pub(crate) fn circles(modules: &[Module]) -> Vec<String> {
    uses(modules)
        .iter()
        .flat_map(|(parent, uses)| circles_of(uses).into_iter().map(move |circle| written(parent, uses, &circle)))
        .collect()
}

/// Returns the uses between the children of each module. Uses by test code count only between the files of a test
/// module. Its other uses can't be part of a circle, since no other code uses test code.
pub(crate) fn uses(modules: &[Module]) -> BTreeMap<String, Uses> {
    let mut all: BTreeMap<String, Uses> = BTreeMap::new();
    for (at, module) in modules.iter().enumerate() {
        let from = file_path(modules, at);
        for path in &module.paths {
            let Some(target) = resolve(modules, at, path, 0) else { continue };
            let to = file_path(modules, target);
            let shared = from.iter().zip(to).take_while(|(one, other)| one == other).count();
            let outside = (module.for_tests || modules[target].for_tests) && !all_for_tests(modules, at, shared);
            if let (Some(one), Some(other), false) = (from.get(shared), to.get(shared), outside) {
                let place = format!("{}: {}", module.file.display(), path.join("::"));
                let uses = all.entry(from[..shared].join("::")).or_default();
                uses.entry(one.clone()).or_default().entry(other.clone()).or_default().insert(place);
            }
        }
    }
    all
}

/// Returns the path of the file that holds a module.
fn file_path(modules: &[Module], mut at: usize) -> &[String] {
    while let (true, Some(parent)) = (modules[at].inline, modules[at].parent) {
        at = parent;
    }
    &modules[at].path
}

/// Returns true if the ancestor of a module at a depth below the crate's root is only for tests.
fn all_for_tests(modules: &[Module], mut at: usize, depth: usize) -> bool {
    while let (true, Some(parent)) = (modules[at].path.len() > depth, modules[at].parent) {
        at = parent;
    }
    modules[at].for_tests
}

/// The max depth of imports that are followed. Cyclic imports would never end.
const MOST_IMPORTS: u32 = 16;

/// Returns the module that declares the last name of a path in a module, or `None` if it is outside the crate.
fn resolve(modules: &[Module], at: usize, path: &[String], depth: u32) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let begin = match first.as_str() {
        "crate" => Found::Module(0),
        "self" => Found::Module(at),
        "super" => Found::Module(modules[at].parent?),
        name => find(modules, at, name, depth)?,
    };
    follow(modules, begin, rest, depth)
}

enum Found {
    Module(usize),
    /// An item of a module.
    Item(usize),
}

fn follow(modules: &[Module], begin: Found, rest: &[String], depth: u32) -> Option<usize> {
    let mut found = begin;
    for name in rest {
        let Found::Module(at) = found else { break };
        found = match name.as_str() {
            "super" => Found::Module(modules[at].parent?),
            name if modules[at].imports.contains_key(name) => find(modules, at, name, depth)?,
            // A macro may declare more than the source shows.
            name => find(modules, at, name, depth).unwrap_or(Found::Item(at)),
        };
    }
    match found {
        Found::Module(at) | Found::Item(at) => Some(at),
    }
}

/// Finds a name in a module: a child, an import, an item, or something that comes by `use path::*`.
fn find(modules: &[Module], at: usize, name: &str, depth: u32) -> Option<Found> {
    let module = &modules[at];
    if depth > MOST_IMPORTS {
        return None;
    }
    if let Some(child) = module.children.get(name) {
        return Some(Found::Module(*child));
    }
    if let Some(path) = module.imports.get(name) {
        // An import of a crate by its own name.
        if path.first().is_some_and(|first| first == name) {
            return None;
        }
        let target = resolve(modules, at, path, depth + 1)?;
        let is_module = modules[target].path.last() == path.last();
        return Some(if is_module { Found::Module(target) } else { Found::Item(target) });
    }
    if module.items.contains(name) {
        return Some(Found::Item(at));
    }
    module.globs.iter().find_map(|path| {
        let target = resolve(modules, at, path, depth + 1)?;
        if target == at { None } else { find(modules, target, name, depth + 1) }
    })
}

/// Returns a shortest circle through each child that reaches itself, unless the child is in an earlier circle.
fn circles_of(uses: &Uses) -> Vec<Vec<String>> {
    let mut circles: Vec<Vec<String>> = vec![];
    for name in uses.keys() {
        if circles.iter().any(|circle| circle.contains(name)) {
            continue;
        }
        circles.extend(shortest(uses, name));
    }
    circles
}

/// Returns the shortest way from a child back to itself.
fn shortest(uses: &Uses, name: &String) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![name.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in uses.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            if next == name {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([way.as_slice(), std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

fn written(parent: &str, uses: &Uses, circle: &[String]) -> String {
    let next = circle.iter().cycle().skip(1);
    let lines = circle
        .iter()
        .zip(next)
        .flat_map(|(one, other)| uses[one][other].iter().map(move |place| format!("\n  {one} uses {other} ({place})")));
    format!("in crate::{parent}") + &lines.collect::<String>()
}
