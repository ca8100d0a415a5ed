//! The infrastructure templates that groups refer to: those of one index, or of many that share them. A shared template
//! is kept once, and its readers are the indexes whose groups refer to it, so that neither its size nor the cost of its
//! change depends on the number of other indexes.
//!
//! An index becomes a reader before it looks for the template, and looks at each evaluation: it misses no change, and a
//! group whose reference changes never lacks a template that is known.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use parking_lot::RwLock;
use rules::capi::{InfrastructureTemplate, KindRef, ObjectKey};

use super::{multimap::Multimap, relations::TemplateKey};

/// A template, or the error for which it doesn't decode.
pub type Template = Result<Arc<InfrastructureTemplate>, ArcStr>;

/// An index that shares templates with others.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TemplateReader(u64);

/// The templates that many indexes share.
#[derive(Debug, Default)]
pub struct SharedTemplates(RwLock<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: HashMap<TemplateKey, Template>,
    readers: Multimap<TemplateKey, TemplateReader>,
    last_reader: u64,
}

impl SharedTemplates {
    /// Stores a template, or removes it, and returns the readers whose groups have to be evaluated.
    #[must_use]
    pub fn set(&self, kind: &KindRef, key: &ObjectKey, template: Option<Template>) -> Vec<TemplateReader> {
        let key = (kind.clone(), key.clone());
        let mut shared = self.0.write();
        let readers = shared.readers.to_vec(&key);
        set(&mut shared.known, key, template);
        readers
    }

    /// Removes all templates of a kind.
    pub fn forget(&self, kind: &KindRef) {
        self.0.write().known.retain(|(of, _), _| of != kind);
    }

    /// Returns the keys of the templates of a kind.
    #[must_use]
    pub fn keys(&self, kind: &KindRef) -> HashSet<ObjectKey> {
        keys(&self.0.read().known, kind)
    }

    /// Returns true if nothing is kept.
    #[cfg(any(test, feature = "test-support"))]
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let shared = self.0.read();
        shared.known.is_empty() && shared.readers.is_empty()
    }

    fn reader(&self) -> TemplateReader {
        let mut shared = self.0.write();
        shared.last_reader += 1;
        TemplateReader(shared.last_reader)
    }
}

/// The templates of an index.
#[derive(Debug)]
pub(super) enum Templates {
    /// It has its own.
    Own(HashMap<TemplateKey, Template>),
    /// It shares them with others.
    Shared(Arc<SharedTemplates>, TemplateReader),
    /// It reads what others share, whose changes don't reach it any more.
    Released(Arc<SharedTemplates>),
}

impl Default for Templates {
    fn default() -> Self {
        Self::Own(HashMap::new())
    }
}

impl Templates {
    pub(super) fn shared(templates: &Arc<SharedTemplates>) -> Self {
        Self::Shared(Arc::clone(templates), templates.reader())
    }

    pub(super) fn reader(&self) -> Option<TemplateReader> {
        match self {
            Self::Shared(_, reader) => Some(*reader),
            Self::Own(_) | Self::Released(_) => None,
        }
    }

    pub(super) fn get(&self, key: &TemplateKey) -> Option<Template> {
        match self {
            Self::Own(known) => known.get(key).cloned(),
            Self::Shared(shared, _) | Self::Released(shared) => shared.0.read().known.get(key).cloned(),
        }
    }

    /// Stores a template, or removes it. Shared ones are stored before their readers hear of it.
    pub(super) fn set(&mut self, key: &TemplateKey, template: Option<Template>) {
        if let Self::Own(known) = self {
            set(known, key.clone(), template);
        }
    }

    pub(super) fn keys(&self, kind: &KindRef) -> HashSet<ObjectKey> {
        match self {
            Self::Own(known) => keys(known, kind),
            Self::Shared(shared, _) | Self::Released(shared) => shared.keys(kind),
        }
    }

    /// Notes that groups refer to a template.
    pub(super) fn refer(&self, key: &TemplateKey) {
        if let Self::Shared(shared, reader) = self {
            shared.0.write().readers.insert(key.clone(), *reader);
        }
    }

    /// Notes that no group refers to a template any more.
    pub(super) fn release(&self, key: &TemplateKey) {
        if let Self::Shared(shared, reader) = self {
            shared.0.write().readers.remove(key, reader);
        }
    }

    /// Lets the changes of shared templates not reach this index any more. It refers to these ones.
    pub(super) fn release_all<'a>(&mut self, keys: impl Iterator<Item = &'a TemplateKey>) {
        for key in keys {
            self.release(key);
        }
        if let Self::Shared(shared, _) = self {
            *self = Self::Released(Arc::clone(shared));
        }
    }
}

fn set(known: &mut HashMap<TemplateKey, Template>, key: TemplateKey, template: Option<Template>) {
    match template {
        Some(template) => known.insert(key, template),
        None => known.remove(&key),
    };
}

fn keys(known: &HashMap<TemplateKey, Template>, kind: &KindRef) -> HashSet<ObjectKey> {
    known.keys().filter(|(of, _)| of == kind).map(|(_, key)| key.clone()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Change, Index, objects::*};

    fn readers(templates: &SharedTemplates, name: &str) -> Vec<TemplateReader> {
        let template = template(name, &json!({"cpu": "4", "memory": "16Gi"})).template();
        templates.set(&kind(), &ObjectKey::new(NAMESPACE, name), template)
    }

    #[test]
    fn an_index_reads_the_templates_to_which_its_groups_refer() {
        let templates = Arc::<SharedTemplates>::default();
        let [one, other] = [(); 2].map(|()| Index::new(rules()).sharing(&templates));
        let of = |index: &Index| index.template_reader().unwrap();
        one.apply(deployment("a", 1, ("0", "9"), &using_template("large")));
        one.apply(deployment("b", 1, ("0", "9"), &using_template("large")));
        other.apply(deployment("a", 1, ("0", "9"), &using_template("large")));
        assert_eq!(readers(&templates, "large"), [of(&one), of(&other)]);
        assert!(readers(&templates, "small").is_empty());

        one.apply(deployment("a", 1, ("0", "9"), &using_template("small")));
        assert_eq!(readers(&templates, "large"), [of(&one), of(&other)], "b still refers to it");
        assert_eq!(readers(&templates, "small"), [of(&one)]);
        one.apply(Change::ScalableGone(id("MachineDeployment/team-a/b")));
        assert_eq!(readers(&templates, "large"), [of(&other)]);

        let last = of(&other);
        other.release_templates();
        assert!(readers(&templates, "large").is_empty(), "{last:?} has released them");
        other.apply(deployment("a", 2, ("0", "9"), &using_template("small")));
        assert_eq!(readers(&templates, "small"), [of(&one)]);
    }
}
