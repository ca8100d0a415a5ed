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

use std::fmt;

use anyhow::bail;

#[cfg(test)]
pub(super) use self::documents::documents;
pub(super) use self::{
    feed::{IndexFeed, fed},
    source::ManifestSource,
};
use self::{objects::Manifests, source::Text};

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
