//! Manifests instead of a cluster: files, directories with everything below them, and standard input, of YAML and JSON,
//! whose objects are applied to an index. Documents that aren't objects are reported and skipped, since a Git repository
//! holds more than objects. The reader must never guess an object.

mod documents;
mod feed;
mod objects;
#[cfg(test)]
mod tests;
mod topology;

use std::{
    collections::HashSet,
    fmt,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::{anyhow, bail};
use walkdir::{DirEntry, WalkDir};

#[cfg(test)]
pub(super) use self::documents::documents;
pub(super) use self::feed::{IndexFeed, fed};
use self::objects::Manifests;

/// The extensions of the files that are read in a directory.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The longest file that is read, in bytes: more than any dump, and a limit for endless files.
const LONGEST: u64 = 2 << 30;

/// The position of a document, or of an item of its list.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    file: String,
    /// The line where its document begins, from 1.
    line: usize,
    /// Its position in a list, from 1.
    item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        self.item.map_or(Ok(()), |item| write!(f, ", item {item}"))
    }
}

/// Reads all sources. `namespace` applies to objects that name none.
pub(super) fn read(sources: &[ManifestSource], namespace: &str) -> anyhow::Result<Manifests> {
    let mut manifests = Manifests::new(namespace);
    for source in sources {
        source.read(|text| manifests.add(&text))?;
    }
    if manifests.is_empty() {
        let names: Vec<_> = sources.iter().map(ToString::to_string).collect();
        bail!(
            "no Kubernetes object is in {}: give a dump (kubectl get … -o yaml), or the manifests themselves",
            names.join(", ")
        );
    }
    Ok(manifests)
}

/// A source of manifests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ManifestSource {
    /// Standard input (`-`).
    Stdin,
    /// A file, or a directory with everything below it that isn't hidden.
    Path(PathBuf),
}

impl From<&str> for ManifestSource {
    fn from(text: &str) -> Self {
        if text == "-" { Self::Stdin } else { Self::Path(PathBuf::from(text)) }
    }
}

impl fmt::Display for ManifestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("standard input"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A text with its name.
struct Text {
    name: String,
    bytes: Vec<u8>,
    /// True if it was named itself, rather than found in a directory.
    is_named: bool,
}

impl ManifestSource {
    /// Passes the texts to `take` one by one; those of a directory are ordered by name.
    fn read(&self, mut take: impl FnMut(Text) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let path = match self {
            Self::Stdin => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes).map_err(|why| unreadable(self, &why))?;
                return take(Text { name: self.to_string(), bytes, is_named: true });
            }
            Self::Path(path) => path,
        };
        if !fs::metadata(path).map_err(|why| unreadable(self, &why))?.is_dir() {
            return take(text(path, true)?);
        }
        // Links may lead to a directory in more ways than can be walked.
        let mut walked = HashSet::new();
        let mut is_new = |entry: &DirEntry| {
            !entry.file_type().is_dir() || fs::canonicalize(entry.path()).map_or(true, |path| walked.insert(path))
        };
        let is_shown = |entry: &DirEntry| entry.depth() == 0 || !is_hidden(entry);
        let is_walked = |entry: &DirEntry| is_shown(entry) && is_new(entry);
        for entry in WalkDir::new(path).follow_links(true).sort_by_file_name().into_iter().filter_entry(is_walked) {
            let entry = match entry {
                Ok(entry) => entry,
                // The target of a link to a parent directory is being read already.
                Err(error) if error.loop_ancestor().is_some() => continue,
                Err(error) => {
                    let path = error.path().unwrap_or(path).display().to_string();
                    return Err(unreadable(&path, &error.into()));
                }
            };
            if entry.file_type().is_file() && has_ending(entry.path()) {
                take(text(entry.path(), false)?)?;
            }
        }
        Ok(())
    }
}

fn text(path: &Path, is_named: bool) -> anyhow::Result<Text> {
    let name = path.display().to_string();
    let unreadable = |why| unreadable(&name, &why);
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > LONGEST {
        return Err(unreadable(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is longer than {LONGEST} bytes"),
        )));
    }
    Ok(Text { name, bytes, is_named })
}

fn unreadable(path: &impl fmt::Display, why: &io::Error) -> anyhow::Error {
    anyhow!("can't read the manifests {path}: {why}: name a file, a directory, or - for standard input")
}

/// Returns true for names such as `.git`, and for the directories behind the links of a mounted ConfigMap.
fn is_hidden(entry: &DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with('.')
}

fn has_ending(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}
