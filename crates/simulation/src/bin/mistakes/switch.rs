//! Combines many mistakes in one program: each function that a mistake changes gets a body per mistake and one without
//! any, and an environment variable chooses among them at run time.

use std::{collections::BTreeMap, ops::Range, path::PathBuf};

use anyhow::{Context as _, Result};
use syn::{
    Block, ImplItemFn, ItemFn, ReturnType, Signature, TraitItemFn,
    visit::{self, Visit},
};

/// The environment variable that names the active mistake.
pub(super) const CHOICE: &str = "MISTAKE";

/// The files that a mistake changes, each with its text before and after.
pub(super) type Changes = BTreeMap<PathBuf, (String, String)>;

/// The files with a body for each mistake.
#[derive(Default)]
pub(super) struct Switched {
    files: BTreeMap<PathBuf, File>,
}

struct File {
    text: String,
    bodies: Vec<Body>,
    /// The mistakes by the number of the body, each with its name and its body.
    mistaken: BTreeMap<usize, Vec<(String, String)>>,
}

/// The body of a function.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Body {
    place: Range<usize>,
    /// True if two bodies can't coexist in it: a constant function, or one whose return type depends on its body.
    is_fixed: bool,
}

impl Switched {
    /// Adds a mistake. Returns false if it changes more than function bodies, and so needs a program of its own.
    pub(super) fn add(&mut self, mistake: &str, changes: &Changes) -> Result<bool> {
        let mut files = Vec::new();
        for (path, (before, after)) in changes {
            let context = || path.display().to_string();
            let (old, new) = (bodies(before).with_context(context)?, bodies(after).with_context(context)?);
            if without(before, &old) != without(after, &new) {
                return Ok(false);
            }
            let mut mistaken = Vec::new();
            for (number, (one, other)) in old.iter().zip(new).enumerate() {
                let body = &after[other.place];
                if *body != before[one.place.clone()] {
                    if one.is_fixed {
                        return Ok(false);
                    }
                    mistaken.push((number, body.to_owned()));
                }
            }
            files.push((path, before, old, mistaken));
        }
        for (path, text, bodies, mistaken) in files {
            let new = || File { text: text.clone(), bodies, mistaken: BTreeMap::new() };
            let file = self.files.entry(path.clone()).or_insert_with(new);
            for (number, body) in mistaken {
                file.mistaken.entry(number).or_default().push((mistake.to_owned(), body));
            }
        }
        Ok(true)
    }

    /// Returns the texts of all files that mistakes change.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&PathBuf, String)> {
        self.files.iter().map(|(path, file)| (path, file.with_choices()))
    }
}

impl File {
    fn with_choices(&self) -> String {
        let mut text = self.text.clone();
        for (number, mistaken) in self.mistaken.iter().rev() {
            let place = self.bodies[*number].place.clone();
            let choice = |(mistake, body): &(String, String)| format!("if is_put_back({mistake:?}) {body} else");
            let choices = mistaken.iter().map(choice).collect::<Vec<_>>().join(" ");
            let plain = &self.text[place.clone()];
            text.replace_range(place, &format!("{{ {} {choices} {plain} }}", chooser()));
        }
        text
    }
}

/// Returns a function that reports whether a mistake is active.
fn chooser() -> String {
    format!(
        "fn is_put_back(mistake: &str) -> bool {{ \
             static CHOSEN: ::std::sync::OnceLock<Option<::std::ffi::OsString>> = ::std::sync::OnceLock::new(); \
             CHOSEN.get_or_init(|| ::std::env::var_os({CHOICE:?})).as_ref().is_some_and(|chosen| chosen == mistake) \
         }}"
    )
}

/// Returns the bodies of a file's outermost functions, in order.
fn bodies(text: &str) -> Result<Vec<Body>> {
    let mut found = Found::default();
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

/// Returns the text with all of these bodies empty.
fn without(text: &str, bodies: &[Body]) -> String {
    let mut text = text.to_owned();
    for body in bodies.iter().rev() {
        text.replace_range(body.place.clone(), "{}");
    }
    text
}

#[derive(Default)]
struct Found(Vec<Body>);

impl Found {
    fn add(&mut self, signature: &Signature, block: &Block) {
        let mut opaque = Opaque(false);
        if let ReturnType::Type(_, output) = &signature.output {
            opaque.visit_type(output);
        }
        let braces = block.brace_token.span;
        let place = braces.open().byte_range().start..braces.close().byte_range().end;
        self.0.push(Body { place, is_fixed: signature.constness.is_some() || opaque.0 });
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.add(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig, block);
        }
    }
}

struct Opaque(bool);

impl<'ast> Visit<'ast> for Opaque {
    fn visit_type_impl_trait(&mut self, found: &'ast syn::TypeImplTrait) {
        self.0 = true;
        visit::visit_type_impl_trait(self, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "struct A;\nimpl A {\n    /// One.\n    fn one(&self) -> u8 { 1 }\n}\nfn two() -> impl Iterator<Item = u8> { [2].into_iter() }\n";

    fn changes(after: &str) -> Changes {
        Changes::from([(PathBuf::from("a.rs"), (PLAIN.to_owned(), after.to_owned()))])
    }

    #[test]
    fn each_mistake_has_a_body() -> Result<()> {
        let mut switched = Switched::default();
        assert!(switched.add("01-x", &changes(&PLAIN.replace("{ 1 }", "{ 7 }")))?);
        assert!(switched.add("02-y", &changes(&PLAIN.replace("{ 1 }", "{ 8 }")))?);
        let texts: Vec<_> = switched.texts().map(|(_, text)| text).collect();
        let [text] = texts.as_slice() else { anyhow::bail!("{texts:?}") };
        assert!(
            text.contains(r#"if is_put_back("01-x") { 7 } else if is_put_back("02-y") { 8 } else { 1 } }"#),
            "{text}"
        );
        assert!(text.contains("{ [2].into_iter() }"), "{text}");
        assert_eq!(bodies(text)?.len(), 2, "{text}");
        Ok(())
    }

    #[test]
    fn a_mistake_outside_function_bodies_needs_a_program_of_its_own() -> Result<()> {
        for (from, to) in [("u8 { 1", "u16 { 1"), ("struct A;", "struct A { a: u8 }"), ("[2]", "[3]")] {
            let mut switched = Switched::default();
            assert!(!switched.add("01-x", &changes(&PLAIN.replace(from, to)))?, "{from}");
            assert_eq!(switched.texts().count(), 0);
        }
        Ok(())
    }
}
