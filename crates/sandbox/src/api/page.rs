//! Lists, whole or in pages. The further pages of a list show the state of its first page, as long as the history
//! reaches back that far.

use std::sync::Arc;

use super::{Api, Forgotten, Object, Refusal, Resource, Target, object::ObjectKey, selector::Selection};

/// The parameters of a list.
#[derive(Debug, Clone)]
pub(crate) struct PageQuery {
    pub(crate) selection: Selection,
    /// The revision that the list must not be older than.
    pub(crate) not_older_than: Option<u64>,
    /// The maximum number of objects of a page; `None` for all.
    pub(crate) limit: Option<usize>,
    /// The `continue` token of the previous page.
    pub(crate) token: Option<String>,
}

impl PageQuery {
    pub(crate) fn all(selection: Selection) -> Self {
        Self { selection, not_older_than: None, limit: None, token: None }
    }
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) target: Target,
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) revision: u64,
    /// The `continue` token of the next page, if there is one.
    pub(crate) token: Option<String>,
    /// The number of objects that follow; unknown with a selector.
    pub(crate) remaining: Option<usize>,
}

/// The position at which a list continues: after a key, in the state of a revision.
struct Token {
    /// The revision of the state; `None` for the latest one.
    revision: Option<u64>,
    /// The number of objects that follow; unknown with a selector.
    remaining: Option<usize>,
    after: ObjectKey,
}

impl Token {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let parse = || {
            let text = String::from_utf8(base64_decode(text)?).ok()?;
            let mut parts = text.splitn(4, '/');
            let revision = Some(parts.next()?).filter(|text| !text.is_empty());
            let revision = revision.map(str::parse).transpose().ok()?;
            let remaining = parts.next()?.parse().ok();
            Some(Self { revision, remaining, after: ObjectKey::new(parts.next()?, parts.next()?) })
        };
        parse().ok_or_else(|| Refusal::bad_request("continue key is not valid: it is none that this API gave out"))
    }

    fn to_text(&self) -> String {
        let number = |number: Option<String>| number.unwrap_or_default();
        let revision = number(self.revision.map(|revision| revision.to_string()));
        let remaining = number(self.remaining.map(|remaining| remaining.to_string()));
        base64_encode(&format!("{revision}/{remaining}/{}/{}", self.after.namespace, self.after.name))
    }
}

fn base64_encode(text: &str) -> String {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

fn base64_decode(text: &str) -> Option<Vec<u8>> {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

impl Api {
    /// Returns a page of the objects of a kind.
    pub(crate) fn page(&self, resource: &Resource, query: &PageQuery) -> Result<Page, Refusal> {
        let token = query.token.as_deref().map(Token::parse).transpose()?;
        let store = self.shared.store.read();
        let target = self.find(&store, resource)?;
        query.selection.fields.check(&target.spec)?;
        let now = store.revision();
        let at = token.as_ref().and_then(|token| token.revision);
        if let Some(wanted) = at.or(query.not_older_than).filter(|wanted| *wanted > now) {
            return Err(too_new(wanted, now));
        }
        let table = store.table(target.id).ok_or_else(Refusal::no_such_resource)?;
        let limit = query.limit.unwrap_or(usize::MAX);
        let (mut objects, mut more) = (Vec::new(), 0);
        // The objects that follow are counted once, on the first page, and only if they need not be matched for it.
        let count = query.selection.is_everything() && token.is_none();
        let after = token.as_ref().map(|token| &token.after);
        let walked = table.walk(at, &query.selection.namespace, after, |object| {
            if !object.is_in(&query.selection) {
                return true;
            }
            if objects.len() < limit {
                objects.push(Arc::clone(object));
                return true;
            }
            more += 1;
            count
        });
        drop(store);
        walked.map_err(|Forgotten { .. }| expired(token.as_ref()))?;
        let revision = at.unwrap_or(now);
        let remaining = match &token {
            Some(token) => token.remaining.map(|remaining| remaining.saturating_sub(objects.len())),
            None => count.then_some(more),
        };
        let remaining = remaining.filter(|_| more > 0);
        let last = objects.last().filter(|_| more > 0);
        let token = last.map(|last| Token { revision: Some(revision), remaining, after: last.key().clone() }.to_text());
        Ok(Page { target, objects, revision, token, remaining })
    }
}

fn too_new(wanted: u64, now: u64) -> Refusal {
    let message = format!("Too large resource version: {wanted}, current: {now}");
    let details = serde_json::json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    });
    Refusal { details: Some(Box::new(details)), ..Refusal::new(504, "Timeout", message) }
}

fn expired(token: Option<&Token>) -> Refusal {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                   new list without the continue parameter, or use the continue token in this response to retrieve \
                   the remainder of the results from the latest state, which may not be consistent with what came \
                   before.";
    let newer = token.map(|token| Token { revision: None, remaining: None, after: token.after.clone() }.to_text());
    Refusal { continue_token: newer, ..Refusal::expired(message) }
}

/// Parses a client's `resourceVersion`.
pub(crate) fn parse_revision(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| {
        Refusal::new(400, "BadRequest", format!("invalid resource version {text:?}: it must be a whole number"))
    })
}
