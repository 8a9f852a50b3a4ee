//! Owns reading events over the native door: pages of JSON, or a stream (SSE) that continues where its reader left off.
//!
//! A stream is pulled by its connection: a slow reader costs no memory, and gets every event from the store until it has caught up.
//! One that stops reading altogether is cut; it comes back with `Last-Event-ID` and misses nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use tenure_core::access::Caller as Looker;
use tenure_core::event::{Cursor, Event, EventKind};
use tenure_core::ledger::access::Sight;
use tenure_store::EventQuery;

use super::history::EventPageView;
use super::model::EventView;
use super::query::{Params, parse_cursor};
use crate::engine::feed::Unseen;
use crate::engine::{Follower, Lagging, Unavailable};
use crate::http::App;
use crate::http::auth::{Caller, header_text};
use crate::http::error::{Code, Problem};
use crate::http::reply;
use crate::http::sight;
use crate::http::status::ProblemBody;

/// A stream without news says so this often, so that both sides notice a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Room for most pieces: what a follower is handed at once is seldom more.
const PIECE_BYTES: usize = 64 * 1_024;

/// Reads events: a page of JSON, or with `Accept: text/event-stream` a stream that goes on.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(("after" = Option<u64>, Query, description = "only later ones; a page starts at the oldest kept, a stream at the present, if not said"),
           ("limit" = Option<u64>, Query, minimum = 1, maximum = 1_000, description = "of a page"),
           ("kind" = Option<String>, Query, description = "only these kinds, separated by commas"),
           ("resource" = Option<String>, Query, description = "only about resources that overlap it"),
           ("holder" = Option<String>, Query, description = "only about leases of this holder"),
           ("Last-Event-ID" = Option<u64>, Header, description = "where a stream continues; stands for `after`")),
    responses((status = 200, description = "a page, or a stream of events with `id`, `event` and `data`",
               content((EventPageView = "application/json"), (String = "text/event-stream"))),
              (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let looker = caller.looking_by_lists()?;
    let params = Params::of(&uri, &["after", "limit", "kind", "resource", "holder"])?;
    let filter = EventQuery {
        kinds: params.get("kind").map(parse_kinds).transpose()?.unwrap_or_default(),
        resource: params.resource()?,
        holder: params.holder()?,
        limit: params.limit()?,
        ..EventQuery::default()
    };
    let after = params.cursor("after")?;
    if wants_stream(&headers) {
        let last_seen = header_text(&headers, "last-event-id")?.map(|text| parse_cursor("Last-Event-ID", text));
        return stream(app, looker, last_seen.transpose()?.or(after), filter).await;
    }
    page(&app, looker, after, filter).await
}

async fn page(
    app: &App,
    looker: Option<Looker>,
    after: Option<Cursor>,
    filter: EventQuery,
) -> Result<Response, Problem> {
    if let Some(after) = after {
        app.engine().check_kept(after).await.map_err(gone)?;
    }
    let query = EventQuery { after: after.unwrap_or_default(), ..filter };
    let mut page = app.engine().read(move |reader| reader.events(&query)).await?;
    let about = page.events.iter().flat_map(|event| &event.resources);
    let sight = sight::of(app, looker.as_ref(), about).await?;
    page.events.retain(|event| shows(&sight, event));
    Ok(reply::json(StatusCode::OK, &EventPageView::from(&page)))
}

/// Whether an event may be shown.
pub(super) fn shows(sight: &Sight, event: &Event) -> bool {
    sight.shows(&event.resources, event.holder.as_ref())
}

async fn stream(
    app: App,
    looker: Option<Looker>,
    after: Option<Cursor>,
    filter: EventQuery,
) -> Result<Response, Problem> {
    let after = after.unwrap_or_else(|| app.engine().last_event());
    let follower = app.engine().follow(after).await.map_err(gone)?;
    let stream = Stream { app, looker, follower, filter: Arc::new(filter), start: Some(after) };
    let body = futures_util::stream::unfold(stream, |mut stream| async move {
        let piece = stream.piece().await?;
        Some((Ok::<Bytes, Infallible>(piece), stream))
    });
    let mut response = reply::typed(StatusCode::OK, "text/event-stream", Body::from_stream(body));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// One open stream.
struct Stream {
    app: App,
    /// Who reads it, if access lists limit what it sees.
    looker: Option<Looker>,
    follower: Follower,
    filter: Arc<EventQuery>,
    /// Where it starts, until that is said.
    start: Option<Cursor>,
}

impl Stream {
    /// What to send next; nothing at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        // The answer's head leaves at once, so that the reader knows it is connected. The id says from where on: a reader whose
        // connection breaks before its first event comes back to this place and not to a later present.
        if let Some(start) = self.start.take() {
            return Some(format!("id: {}\n: connected\n\n", start.0).into());
        }
        // One sleep for all that is not asked for: on a busy server that never ends, and the reader would hear nothing.
        let mut quiet = std::pin::pin!(tokio::time::sleep(KEEP_ALIVE));
        loop {
            let unseen = tokio::select! {
                unseen = self.follower.next() => unseen,
                () = quiet.as_mut() => return Some(self.still_here()),
                () = self.app.closing() => return None,
            };
            let rendered = match unseen {
                Ok(unseen) => self.render(&unseen).await.map_err(Lagging::from),
                Err(lagging) => Err(lagging),
            };
            match rendered {
                Ok(Some(piece)) => return Some(piece),
                Ok(None) => {}
                // The reader comes back with its last id and is told what is the matter.
                Err(lagging) => {
                    tracing::warn!(%lagging, "an event stream ends");
                    return None;
                }
            }
        }
    }

    /// Says that nothing happened, up to where: a reader whose filter finds little would come back with an id so old that it is
    /// no longer kept.
    fn still_here(&self) -> Bytes {
        format!(": still here\nid: {}\n\n", self.follower.cursor().0).into()
    }

    /// What of it is asked for and may be seen.
    async fn render(&self, unseen: &Unseen) -> Result<Option<Bytes>, Unavailable> {
        let about = unseen.iter().flat_map(|published| &published.event().resources);
        let sight = sight::of(&self.app, self.looker.as_ref(), about).await?;
        Ok(self.piece_of(unseen, &sight))
    }

    fn piece_of(&self, unseen: &Unseen, sight: &Sight) -> Option<Bytes> {
        let is_wanted = |event: &Event| self.filter.matches(event) && shows(sight, event);
        let mut wanted = unseen.iter().filter(|published| is_wanted(published.event()));
        let first = wanted.next()?.rendered(render).clone();
        let Some(second) = wanted.next() else { return Some(first) };
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        piece.put(first);
        piece.put(&second.rendered(render)[..]);
        for published in wanted {
            piece.put(&published.rendered(render)[..]);
        }
        Some(piece.freeze())
    }
}

/// An event as a stream carries it. JSON has no line breaks of its own, so the data is one line.
fn render(event: &Event) -> Bytes {
    let mut text = format!("id: {}\nevent: {}\ndata: ", event.cursor.0, event.kind.as_str()).into_bytes();
    if let Err(error) = serde_json::to_writer(&mut text, &EventView::from(event)) {
        tracing::error!(%error, cursor = event.cursor.0, "an event cannot be written as JSON");
    }
    text.extend_from_slice(b"\n\n");
    text.into()
}

fn gone(lagging: Lagging) -> Problem {
    match lagging {
        Lagging::Unavailable(unavailable) => unavailable.into(),
        Lagging::Gone { asked, first, last } => {
            let detail = format!(
                "events after {} cannot be read: kept are {} to {}; read the present leases, then go on from there",
                asked.0, first.0, last.0
            );
            Problem::new(Code::Gone, detail).with("first", first.0).with("last", last.0)
        }
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let types = accepts.flat_map(|value| value.split(',')).filter_map(|part| part.split(';').next());
    types.map(str::trim).any(|name| name.eq_ignore_ascii_case("text/event-stream"))
}

fn parse_kinds(text: &str) -> Result<Vec<EventKind>, Problem> {
    let parse = |name: &str| {
        let known = EventKind::ALL.into_iter().find(|kind| kind.as_str() == name.trim());
        known.ok_or_else(|| Problem::field("kind", "no event is of this kind; /openapi.json lists them"))
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use tenure_core::command::Acquire;
    use tenure_core::{Holder, Resource, Ttl};
    use tenure_store::Memory;
    use tokio::sync::watch;

    use super::*;
    use crate::Config;
    use crate::engine::Engine;
    use crate::engine::clock::SystemClock;
    use crate::http::Parts;

    #[test]
    fn a_stream_is_asked_for_by_its_type_in_any_case() {
        for (accept, is_wanted) in [
            ("text/event-stream", true),
            ("Text/Event-Stream", true),
            ("application/json, text/event-stream;q=0.9", true),
            ("text/event-streams", false),
            ("*/*", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(wants_stream(&headers), is_wanted, "{accept}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_finds_nothing_says_how_far_it_has_looked() {
        let engine = Engine::open(Box::new(Memory::new()), Arc::new(SystemClock::default())).expect("an engine");
        let (_close, closing) = watch::channel(false);
        let app = App(Arc::new(Parts { engine: engine.clone(), config: Config::default(), closing }));
        let start = engine.last_event();
        let follower = engine.follow(start).await.expect("a follower");
        let filter = Arc::new(EventQuery { holder: Holder::parse("quiet").ok(), ..EventQuery::default() });
        let mut stream = Stream { app, looker: None, follower, filter, start: Some(start) };
        assert_eq!(stream.piece().await, Some(format!("id: {}\n: connected\n\n", start.0).into()));
        let resource = Resource::parse("job:1").expect("a resource");
        let acquire =
            Acquire::new([resource], Holder::parse("loud").expect("a holder"), Ttl::from_ms(60_000).expect("a ttl"));
        engine.acquire(acquire).await.expect("an answer").expect("a grant");
        let last = engine.last_event();
        assert!(last > start);
        assert_eq!(stream.piece().await, Some(format!(": still here\nid: {}\n\n", last.0).into()));
    }
}
