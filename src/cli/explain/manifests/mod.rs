//! Manifests instead of a cluster: files and directories of YAML and JSON, whose objects are applied to an index.
//! Documents that aren't objects are reported and skipped, since a Git repository holds more than objects. The reader
//! must never guess an object.

mod documents;
mod feed;
mod objects;
mod source;
#[cfg(test)]
mod tests;
mod topology;

use std::{fmt, io};

use thiserror::Error;

pub(super) use self::{
    documents::documents,
    feed::{IndexFeed, fed},
    source::ManifestSource,
};
use self::{objects::Manifests, source::Text};

/// The reason why manifests can't be read.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// A file or a directory can't be read.
    #[error("can't read the manifests {path}: {why}: name a file, a directory, or - for standard input")]
    Unreadable {
        /// The path.
        path: String,
        /// The error of the operating system.
        why: io::Error,
    },
    /// A named file holds something other than YAML or JSON.
    #[error("{place}: {why}: only in a directory is such a file skipped")]
    Broken {
        /// The position of the defect.
        place: Place,
        /// The reason.
        why: String,
    },
    /// The manifests hold no object.
    #[error("no Kubernetes object is in {0}: give a dump (kubectl get … -o yaml), or the manifests themselves")]
    Nothing(String),
}

/// The position of a document, or of an item of its list.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
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
pub(super) fn read(sources: &[ManifestSource], namespace: &str) -> Result<Manifests, ManifestError> {
    let mut manifests = Manifests::new(namespace);
    for source in sources {
        source.read(|text| manifests.add(&text))?;
    }
    if manifests.is_empty() {
        let names: Vec<_> = sources.iter().map(ToString::to_string).collect();
        return Err(ManifestError::Nothing(names.join(", ")));
    }
    Ok(manifests)
}
