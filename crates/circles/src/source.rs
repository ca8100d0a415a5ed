//! Reads a crate's files into modules: their children, imports, items and the paths that they name. Test code inside
//! other files is skipped; test modules with files of their own are read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module: a file, or a `mod name { … }` within one.
#[derive(Default)]
pub(crate) struct Module {
    /// The file that holds it, from the crate's root.
    pub(crate) file: PathBuf,
    /// The module's names from the crate's root on.
    pub(crate) path: Vec<String>,
    /// True if the module is inline, not in a file of its own.
    pub(crate) inline: bool,
    /// True if its own attribute or an enclosing module restricts it to tests.
    pub(crate) for_tests: bool,
    pub(crate) parent: Option<usize>,
    pub(crate) children: BTreeMap<String, usize>,
    /// The paths of the names that it imports.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// The paths of its glob imports.
    pub(crate) globs: Vec<Vec<String>>,
    pub(crate) items: BTreeSet<String>,
    /// All paths of more than one segment, those of its imports included.
    pub(crate) paths: BTreeSet<Vec<String>>,
}

/// Reads the modules of a crate, its root first.
pub(crate) fn read_crate(root: &Path) -> Result<Vec<Module>> {
    let mut modules = vec![Module { file: root.to_owned(), ..Module::default() }];
    read_file(&mut modules, 0, &folder(root))?;
    Ok(modules)
}

fn folder(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

/// Reads the file of a module whose children lie in a folder.
fn read_file(modules: &mut Vec<Module>, at: usize, children: &Path) -> Result<()> {
    let file = &modules[at].file;
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{}: {error}", file.display()))?;
    let tokens: Vec<_> = tokens.into_iter().collect();
    Reader { modules, at, children, attributes: Attributes::default() }.body(&tokens, true)
}

struct Reader<'modules> {
    modules: &'modules mut Vec<Module>,
    at: usize,
    children: &'modules Path,
    /// Attributes of the next module.
    attributes: Attributes,
}

#[derive(Default)]
struct Attributes {
    for_tests: bool,
    /// The path of its file, if a `path` attribute sets it.
    path: Option<String>,
}

impl Reader<'_> {
    /// Reads the tokens between two braces. Items count only at the outermost level of a module.
    fn body(&mut self, tokens: &[TokenTree], outermost: bool) -> Result<()> {
        let mut next = 0;
        while let Some(token) = tokens.get(next) {
            let ahead = &tokens[next..];
            next += match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_for_tests(ahead) => {
                    if is_file(ahead) {
                        self.attributes.for_tests = true;
                        2
                    } else {
                        length_of_item(ahead)
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == '#' && place(ahead).is_some() => {
                    self.attributes.path = place(ahead);
                    2
                }
                // A field or a method isn't a path.
                TokenTree::Punct(punct) if punct.as_char() == '.' && is_ident(ahead.get(1)) => 2,
                // A path of another crate, or the rest of a path after generics.
                TokenTree::Punct(_) if is_separator(ahead) => 2 + path(&ahead[2..]).1,
                TokenTree::Ident(word) if word == "use" => self.import(ahead),
                TokenTree::Ident(word) if word == "mod" && is_ident(ahead.get(1)) => self.child(ahead)?,
                TokenTree::Ident(word) => {
                    if outermost && declares(&word.to_string()) {
                        self.modules[self.at].items.extend(ahead.get(1).map(ToString::to_string));
                    }
                    let (path, length) = path(ahead);
                    if path.len() > 1 {
                        self.modules[self.at].paths.insert(path);
                    }
                    length
                }
                TokenTree::Group(group) => {
                    self.body(&group.stream().into_iter().collect::<Vec<_>>(), false)?;
                    1
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => 1,
            };
        }
        Ok(())
    }

    /// Reads `use tree;` and returns its length.
    fn import(&mut self, tokens: &[TokenTree]) -> usize {
        let end = tokens.iter().position(|token| is_punct(Some(token), ';')).unwrap_or(tokens.len());
        self.tree(&tokens[1..end], &[]);
        end
    }

    /// Reads a tree of imports below a prefix.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        // A crate by its full name.
        if is_separator(tokens) {
            return;
        }
        let (segments, length) = path(tokens);
        let mut whole = [prefix, &segments].concat();
        let rest = &tokens[length..];
        let rest = if is_separator(rest) { &rest[2..] } else { rest };
        let module = &mut self.modules[self.at];
        match rest {
            [TokenTree::Group(group), ..] => {
                let list: Vec<_> = group.stream().into_iter().collect();
                for tree in list.split(|token| is_punct(Some(token), ',')).filter(|tree| !tree.is_empty()) {
                    self.tree(tree, &whole);
                }
            }
            [TokenTree::Punct(star), ..] if star.as_char() == '*' => {
                module.paths.insert(whole.clone());
                module.globs.push(whole);
            }
            more => {
                if whole.len() > 1 && whole.last().is_some_and(|last| last == "self") {
                    whole.pop();
                }
                // After `as`.
                let name = more.get(1).map(ToString::to_string).or_else(|| whole.last().cloned());
                module.paths.insert(whole.clone());
                module.imports.extend(name.map(|name| (name, whole)));
            }
        }
    }

    /// Reads `mod name;` or `mod name { … }` and returns its length.
    fn child(&mut self, tokens: &[TokenTree]) -> Result<usize> {
        let name = tokens[1].to_string();
        let attributes = std::mem::take(&mut self.attributes);
        let parent = &self.modules[self.at];
        let mut child = Module {
            file: parent.file.clone(),
            path: [parent.path.as_slice(), std::slice::from_ref(&name)].concat(),
            parent: Some(self.at),
            for_tests: parent.for_tests || attributes.for_tests,
            ..Module::default()
        };
        let at = self.modules.len();
        let mut children = self.children.join(&name);
        self.modules[self.at].children.insert(name.clone(), at);
        if let Some(TokenTree::Group(body)) = tokens.get(2) {
            child.inline = true;
            self.modules.push(child);
            let body: Vec<_> = body.stream().into_iter().collect();
            let attributes = Attributes::default();
            Reader { modules: self.modules, at, children: &children, attributes }.body(&body, true)?;
        } else {
            let flat = self.children.join(format!("{name}.rs"));
            if let Some(place) = attributes.path {
                child.file = folder(&child.file).join(place);
                children = folder(&child.file);
            } else {
                child.file = if flat.exists() { flat } else { children.join("mod.rs") };
            }
            self.modules.push(child);
            read_file(self.modules, at, &children)?;
        }
        Ok(3)
    }
}

/// Returns the path at the front, without generics, and its length in tokens.
fn path(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let (mut segments, mut length) = (vec![], 0);
    while let Some(TokenTree::Ident(segment)) = tokens.get(length) {
        segments.push(segment.to_string());
        length += 1;
        if !(is_separator(&tokens[length..]) && is_ident(tokens.get(length + 2))) {
            break;
        }
        length += 2;
    }
    (segments, length)
}

fn declares(word: &str) -> bool {
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static"].contains(&word)
}

fn is_ident(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Ident(_)))
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')
}

/// Returns true if an attribute compiles the next item only for tests.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(attribute)) = tokens.get(1) else { return false };
    let text = attribute.stream().to_string();
    let words: Vec<_> = text.split(|letter: char| !letter.is_alphanumeric()).collect();
    words.first() == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not")
}

/// Returns true if attributes precede a module in a file of its own.
fn is_file(tokens: &[TokenTree]) -> bool {
    let mut words = tokens;
    while is_punct(words.first(), '#') {
        words = words.get(2..).unwrap_or_default();
    }
    if matches!(words.first(), Some(TokenTree::Ident(word)) if word == "pub") {
        words = &words[1..];
        if matches!(words.first(), Some(TokenTree::Group(_))) {
            words = &words[1..];
        }
    }
    matches!(words, [TokenTree::Ident(word), TokenTree::Ident(_), end, ..] if word == "mod" && is_punct(Some(end), ';'))
}

/// Returns the file that an attribute `#[path = "file"]` names.
fn place(tokens: &[TokenTree]) -> Option<String> {
    let Some(TokenTree::Group(attribute)) = tokens.get(1) else { return None };
    let attribute: Vec<_> = attribute.stream().into_iter().collect();
    match attribute.as_slice() {
        [TokenTree::Ident(name), _, TokenTree::Literal(file)] if name == "path" => {
            Some(file.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}

/// Returns the length of an item, field or statement with its attributes.
fn length_of_item(tokens: &[TokenTree]) -> usize {
    let mut length = 0;
    while is_punct(tokens.get(length), '#') {
        length += 2;
    }
    let until_semicolon = tokens[length..]
        .iter()
        .map_while(|token| if let TokenTree::Ident(word) = token { Some(word.to_string()) } else { None })
        .any(|word| ["use", "const", "static", "type", "let"].contains(&word.as_str()));
    for token in &tokens[length..] {
        length += 1;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            TokenTree::Punct(punct) if punct.as_char() == ',' && !until_semicolon => break,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !until_semicolon => break,
            _ => {}
        }
    }
    length
}
