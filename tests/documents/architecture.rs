//! The page on the architecture against the code: its modules and their uses, and the files of its walks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use regex::Regex;

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

fn modules() -> BTreeSet<String> {
    let library = read("src/lib.rs");
    let declared = Regex::new(r"(?m)^(?:pub )?mod (\w+);").unwrap();
    declared.captures_iter(&library).map(|found| found[1].to_owned()).collect()
}

/// A source without its comments and its tests.
fn plain(source: &str) -> String {
    let tests = Regex::new(r"#\[cfg\(test\)\]\n(?:#\[allow[^\n]*\n)?(?:pub\(crate\) )?mod \w+ \{").unwrap();
    let code = tests.split(source).next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The names behind `crate::`, those in the outermost braces of a list among them.
fn used(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, found) in code.match_indices("crate::") {
        let rest = &code[at + found.len()..];
        let (list, mut depth) = (rest.strip_prefix('{'), 0_u32);
        let mut text = String::new();
        for letter in list.unwrap_or(rest).chars() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                letter if depth == 0 => text.push(letter),
                _ => {}
            }
            if list.is_none() && !(letter.is_alphanumeric() || letter == '_') {
                break;
            }
        }
        let first =
            |part: &str| part.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
        names.extend(text.split(',').filter_map(first));
    }
    names
}

/// The modules that each module uses.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules();
    let mut uses: BTreeMap<_, BTreeSet<_>> = modules.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for entry in walkdir::WalkDir::new(root().join("src")) {
        let path = entry.unwrap().into_path();
        let place: Vec<_> =
            path.strip_prefix(root().join("src")).unwrap().iter().map(|part| part.to_str().unwrap()).collect();
        let is_test = place.iter().any(|part| ["tests", "tests.rs", "testing.rs"].contains(part));
        if is_test || path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let Some(uses) = place.first().and_then(|first| uses.get_mut(first.trim_end_matches(".rs"))) else { continue };
        uses.extend(used(&plain(&fs::read_to_string(&path).unwrap())));
    }
    for (module, names) in &mut uses {
        names.retain(|name| name != module && modules.contains(name));
    }
    uses
}

#[test]
fn the_page_lists_each_module_with_the_modules_that_it_uses() {
    let document = read(PAGE);
    let documented: BTreeMap<_, BTreeSet<_>> = rows(section(&document, "Modules"))
        .into_iter()
        .map(|row| (row[0].trim_matches('`').to_owned(), code(row[2]).map(str::to_owned).collect()))
        .collect();
    for (module, uses) in uses() {
        let documented = documented.get(&module).unwrap_or_else(|| panic!("{PAGE} doesn't list {module}"));
        // It joins the others.
        if module != "cli" {
            assert_eq!(*documented, uses, "{module}");
        }
    }
    assert_eq!(documented.keys().cloned().collect::<BTreeSet<_>>(), modules());
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
        assert!(entered.len() > 10, "{entered:?}");
    }
}

#[test]
fn the_page_is_one_page() {
    let document = read(PAGE);
    let words = document.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    assert!(words <= 900, "{words} words");
}
