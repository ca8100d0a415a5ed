//! Access to objects as JSON, and the suffixes of generated names. Absent fields and fields of the wrong type count as
//! empty: the objects come from people and tests, and a controller must handle all of them.

use serde_json::{Map, Value, json};

/// An object of the API.
pub(crate) trait Object {
    fn kind(&self) -> &str;
    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn uid(&self) -> &str;
    fn generation(&self) -> i64;
    fn deleting(&self) -> bool;
    fn label(&self, key: &str) -> Option<&str>;
    fn annotation(&self, key: &str) -> Option<&str>;
    fn has_finalizer(&self, name: &str) -> bool;
    /// Returns the owner reference of the controller.
    fn controller(&self) -> Option<&Value>;
    /// Returns the text at a JSON pointer; empty text is `None`.
    fn text(&self, pointer: &str) -> Option<&str>;
    /// Returns the number at a JSON pointer, or 0.
    fn number(&self, pointer: &str) -> i64;
    /// Returns the object at a JSON pointer, or an empty one.
    fn map(&self, pointer: &str) -> Map<String, Value>;

    /// Sets the value at a JSON pointer, and creates the objects on the path.
    fn set(&mut self, pointer: &str, value: Value);
    /// Sets the value if there is none yet; null sets nothing.
    fn set_default(&mut self, pointer: &str, value: Value);
    /// Removes the value at a JSON pointer.
    fn unset(&mut self, pointer: &str);
    fn add_finalizer(&mut self, name: &str);
    fn remove_finalizer(&mut self, name: &str);
}

impl Object for Value {
    fn kind(&self) -> &str {
        self["kind"].as_str().unwrap_or_default()
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
        self["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
    }

    fn controller(&self) -> Option<&Value> {
        self["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
    }

    fn number(&self, pointer: &str) -> i64 {
        self.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
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

/// Returns the JSON pointer to an annotation.
pub(crate) fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", escape(key))
}

/// Returns the JSON pointer to a label.
pub(crate) fn label(key: &str) -> String {
    format!("/metadata/labels/{}", escape(key))
}

/// Returns an owner reference to the controller of an object.
pub(crate) fn controlled_by(owner: &Value) -> Value {
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

/// A source of suffixes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    drawn: u64,
}

impl Names {
    /// Returns five characters that haven't been used for long.
    pub(crate) fn suffix(&mut self) -> String {
        self.drawn += 1;
        code(self.drawn)
    }
}

/// Returns the five characters of a text, which are always the same.
pub(crate) fn suffix_of(text: &str) -> String {
    code(hash(text))
}

/// Returns five characters for a number.
fn code(number: u64) -> String {
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
