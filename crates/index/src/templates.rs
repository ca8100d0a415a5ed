//! The infrastructure and bootstrap templates that groups refer to: those of one index, or of many that share them, so that each is
//! kept once. An index looks for a template at each evaluation, and has to hear of a change after it was stored: then
//! it misses none, and a group whose reference changes never lacks a template that is known.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use parking_lot::RwLock;
use rules::capi::{InfrastructureTemplate, KindRef, ObjectKey, SpecDigest};

use super::{relations::TemplateKey, state::Index};

/// A template, or the error for which it doesn't decode.
pub type Template = Result<Arc<InfrastructureTemplate>, ArcStr>;

/// Templates that many indexes may share.
#[derive(Debug, Default)]
pub struct SharedTemplates(RwLock<HashMap<TemplateKey, Known>>);

#[derive(Debug)]
struct Known {
    template: Template,
    /// The time at which its spec is known to be another one than before; `None` if it never was.
    changed_at: Option<Timestamp>,
}

impl Known {
    /// A spec that was changed in place before it was first seen may have been changed just now.
    fn new(template: Template, before: Option<&Self>) -> Self {
        let spec = |template: &Template| template.as_ref().ok().map(|template| template.spec);
        let changed_at = match (before, &template) {
            (Some(before), _) if spec(&before.template) == spec(&template) => before.changed_at,
            (None, Ok(template)) if template.generation <= 1 => None,
            (Some(_) | None, _) => Some(Timestamp::now()),
        };
        Self { template, changed_at }
    }
}

impl Index {
    /// Returns true if a group refers to this template. Ask after it was stored: a group that comes to refer to it later
    /// finds it there.
    pub fn names_template(&self, template: &(KindRef, ObjectKey)) -> bool {
        self.inner.read().live.groups_by_template.get(template).next().is_some()
    }
}

impl SharedTemplates {
    /// Stores a template, or removes it.
    pub fn set(&self, kind: &KindRef, key: &ObjectKey, template: Option<Template>) {
        let (key, mut known) = ((kind.clone(), key.clone()), self.0.write());
        match template {
            Some(template) => {
                let now = Known::new(template, known.get(&key));
                known.insert(key, now)
            }
            None => known.remove(&key),
        };
    }

    /// Removes all templates of a kind.
    pub fn forget(&self, kind: &KindRef) {
        self.0.write().retain(|(of, _), _| of != kind);
    }

    /// Returns the keys of the templates of a kind.
    pub fn keys(&self, kind: &KindRef) -> HashSet<ObjectKey> {
        self.0.read().keys().filter(|(of, _)| of == kind).map(|(_, key)| key.clone()).collect()
    }

    pub(super) fn get(&self, key: &TemplateKey) -> Option<Template> {
        Some(self.0.read().get(key)?.template.clone())
    }

    /// Returns the digest of a template's spec, and the time since which it has that spec if it had another one before.
    pub(super) fn spec(&self, key: &TemplateKey) -> Option<(SpecDigest, Option<Timestamp>)> {
        let known = self.0.read();
        let Known { template, changed_at } = known.get(key)?;
        Some((template.as_ref().ok()?.spec, *changed_at))
    }

    /// Returns true if nothing is kept.
    #[cfg(any(test, feature = "test-support"))]
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }
}
