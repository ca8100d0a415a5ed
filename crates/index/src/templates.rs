//! The infrastructure templates that groups refer to: those of one index, or of many that share them, so that each is
//! kept once. An index looks for a template at each evaluation, and has to hear of a change after it was stored: then
//! it misses none, and a group whose reference changes never lacks a template that is known.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use parking_lot::RwLock;
use rules::capi::{InfrastructureTemplate, KindRef, ObjectKey};

use super::relations::TemplateKey;

/// A template, or the error for which it doesn't decode.
pub type Template = Result<Arc<InfrastructureTemplate>, ArcStr>;

/// Templates that many indexes may share.
#[derive(Debug, Default)]
pub struct SharedTemplates(RwLock<HashMap<TemplateKey, Template>>);

impl SharedTemplates {
    /// Stores a template, or removes it.
    pub fn set(&self, kind: &KindRef, key: &ObjectKey, template: Option<Template>) {
        let (key, mut known) = ((kind.clone(), key.clone()), self.0.write());
        match template {
            Some(template) => known.insert(key, template),
            None => known.remove(&key),
        };
    }

    /// Removes all templates of a kind.
    pub fn forget(&self, kind: &KindRef) {
        self.0.write().retain(|(of, _), _| of != kind);
    }

    /// Returns the keys of the templates of a kind.
    #[must_use]
    pub fn keys(&self, kind: &KindRef) -> HashSet<ObjectKey> {
        self.0.read().keys().filter(|(of, _)| of == kind).map(|(_, key)| key.clone()).collect()
    }

    pub(super) fn get(&self, key: &TemplateKey) -> Option<Template> {
        self.0.read().get(key).cloned()
    }

    /// Returns true if nothing is kept.
    #[cfg(any(test, feature = "test-support"))]
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }
}
