//! Access to objects as JSON, and the suffixes of generated names. Absent fields and fields of the wrong type count as
//! empty: the objects come from people and tests, and controllers must handle all of them.

use serde_json::{Map, Value, json};

/// An object of a Kubernetes API. Places are JSON pointers.
pub trait Object {
    /// `kind`
    fn kind(&self) -> &str;
    /// The API group; empty for core kinds.
    fn group(&self) -> &str;
    /// `metadata.name`
    fn name(&self) -> &str;
    /// `metadata.namespace`
    fn namespace(&self) -> &str;
    /// `metadata.uid`
    fn uid(&self) -> &str;
    /// `metadata.generation`
    fn generation(&self) -> i64;
    /// True if it is being deleted.
    fn deleting(&self) -> bool;
    /// A label.
    fn label(&self, key: &str) -> Option<&str>;
    /// An annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// True if it has this finalizer.
    fn has_finalizer(&self, name: &str) -> bool;
    /// The owner reference of the controller.
    fn controller(&self) -> Option<&Value>;
    /// A text; an empty one is `None`.
    fn text(&self, pointer: &str) -> Option<&str>;
    /// A whole number.
    fn integer(&self, pointer: &str) -> Option<i64>;
    /// A whole number, or 0.
    fn number(&self, pointer: &str) -> i64;
    /// A list, or an empty one.
    fn list(&self, pointer: &str) -> &[Value];
    /// A map, or an empty one.
    fn map(&self, pointer: &str) -> Map<String, Value>;

    /// Sets a value, and creates the maps on the path.
    fn set(&mut self, pointer: &str, value: Value);
    /// Sets a value if there is none yet; null sets nothing.
    fn set_default(&mut self, pointer: &str, value: Value);
    /// Removes a value.
    fn unset(&mut self, pointer: &str);
    /// Adds a finalizer, unless it has it.
    fn add_finalizer(&mut self, name: &str);
    /// Removes a finalizer.
    fn remove_finalizer(&mut self, name: &str);
}

impl Object for Value {
    fn kind(&self) -> &str {
        self["kind"].as_str().unwrap_or_default()
    }

    fn group(&self) -> &str {
        let api_version = self["apiVersion"].as_str().unwrap_or_default();
        api_version.split_once('/').map_or("", |(group, _)| group)
    }

    fn name(&self) -> &str {
        self["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self["metadata"]["uid"].as_str().unwrap_or_default()
    }

    fn generation(&self) -> i64 {
        self.number("/metadata/generation")
    }

    fn deleting(&self) -> bool {
        self["metadata"]["deletionTimestamp"].is_string()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self["metadata"]["labels"][key].as_str()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self["metadata"]["annotations"][key].as_str()
    }

    fn has_finalizer(&self, name: &str) -> bool {
        self.list("/metadata/finalizers").iter().any(|one| one == name)
    }

    fn controller(&self) -> Option<&Value> {
        self.list("/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
    }

    fn integer(&self, pointer: &str) -> Option<i64> {
        self.pointer(pointer)?.as_i64()
    }

    fn number(&self, pointer: &str) -> i64 {
        self.integer(pointer).unwrap_or_default()
    }

    fn list(&self, pointer: &str) -> &[Value] {
        self.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    fn map(&self, pointer: &str) -> Map<String, Value> {
        self.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    fn set(&mut self, pointer: &str, value: Value) {
        let mut place = self;
        for part in pointer.split('/').skip(1) {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[unescape(part)];
        }
        *place = value;
    }

    fn set_default(&mut self, pointer: &str, value: Value) {
        if !value.is_null() && self.pointer(pointer).is_none_or(Value::is_null) {
            self.set(pointer, value);
        }
    }

    fn unset(&mut self, pointer: &str) {
        let Some((parent, last)) = pointer.rsplit_once('/') else { return };
        if let Some(Value::Object(parent)) = self.pointer_mut(parent) {
            parent.remove(&unescape(last));
        }
    }

    fn add_finalizer(&mut self, name: &str) {
        if self.has_finalizer(name) {
            return;
        }
        self.set_default("/metadata/finalizers", json!([]));
        if let Some(all) = self["metadata"]["finalizers"].as_array_mut() {
            all.push(json!(name));
        }
    }

    fn remove_finalizer(&mut self, name: &str) {
        if let Some(all) = self["metadata"]["finalizers"].as_array_mut() {
            all.retain(|one| one != name);
        }
    }
}

/// Escapes a key as one part of a JSON pointer.
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

pub(crate) fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", escape(key))
}

pub(crate) fn label(key: &str) -> String {
    format!("/metadata/labels/{}", escape(key))
}

/// Returns an owner reference to the controller of an object.
pub fn controlled_by(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner.kind(),
        "name": owner.name(),
        "uid": owner.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns the labels that a selector requires as `key=value,…`, as in `/scale`.
pub(crate) fn selector_text(labels: &Map<String, Value>) -> String {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// Letters and digits that form no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    drawn: u64,
}

impl Names {
    /// Returns five characters that haven't been used for long.
    pub(crate) fn suffix(&mut self) -> String {
        self.drawn += 1;
        suffix(self.drawn)
    }
}

/// Returns the five characters of a text, which are always the same.
pub(crate) fn suffix_of(text: &str) -> String {
    suffix(hash(text))
}

/// Returns five characters for a number, which form no word.
pub fn suffix(number: u64) -> String {
    let mut rest = scatter(number);
    let base = ALPHABET.len() as u64;
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        let index = usize::try_from(rest % base).unwrap_or_default();
        text.push(char::from(ALPHABET[index]));
        rest /= base;
    }
    text
}

/// Returns a hash of a text, for the label that distinguishes templates.
pub(crate) fn hash(text: &str) -> u64 {
    // FNV-1a
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads nearby numbers over the whole range (the finalizer of SplitMix64).
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
