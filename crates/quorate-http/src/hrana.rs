//! Hrana over HTTP, versions 2 and 3 with JSON: the protocol of libSQL's clients. The two calls of version 1 are here
//! too, for clients that know only those.

mod batch;
mod decode;
mod describe;
mod encode;
pub(crate) mod socket;
mod stream;
mod streams;
mod texts;

use hyper::StatusCode;

pub(crate) use decode::fuzz_pipeline;
use decode::{CursorBody, PipelineBody, StreamRequest, decode};
use encode::{Cursor, write_problem, write_response};
use stream::Stream;
pub(crate) use streams::Streams;

use crate::door::Doors;
use crate::error::Problem;
use crate::json::Json;
use crate::message::{Answer, Content, answer, with_position};
use crate::work::{KEYED_TRANSACTION, Work};

/// The result of one request, as JSON that is complete but for its frame.
#[derive(Debug)]
enum Done {
    /// The response, with its type.
    Ok(&'static str, Option<Json>),
    Problem(Problem),
}

/// Answers `POST /v2/pipeline` and `/v3/pipeline`.
pub(crate) async fn pipeline(doors: &Doors, mut work: Work, body: &[u8]) -> Result<Answer, Problem> {
    let body: PipelineBody = decode(body)?;
    body.check()?;
    let (id, mut stream) = doors.streams().take(body.baton.as_deref(), work.caller())?;
    let (mut is_closed, mut is_refused) = (false, false);
    let mut results = Vec::with_capacity(body.requests.len());
    for request in body.requests {
        let done = match request {
            _ if is_closed => Done::Problem(Problem::StreamClosed),
            StreamRequest::Execute { .. } if is_refused => Done::Problem(Problem::NotOffered(KEYED_TRANSACTION)),
            request => serve(&mut stream, &mut work, request).await,
        };
        is_closed = is_closed || matches!(done, Done::Ok("close", _));
        // The client meant the later statements to run in the transaction, so they must not run outside of it.
        is_refused = is_refused || (work.has_key() && matches!(done, Done::Problem(Problem::NotOffered(_))));
        results.push(done);
    }
    let baton = if is_closed { None } else { Some(doors.streams().keep(id, stream, work.caller())?) };
    let mut json = Json::default();
    json.raw("{");
    frame(&mut json, doors, baton.as_deref());
    json.raw(",\"results\":").list(results, write_done).raw("}");
    Ok(with_position(answer(StatusCode::OK, Content::Json, json.into_bytes()), work.position()))
}

/// Answers `POST /v3/cursor`.
pub(crate) async fn cursor(doors: &Doors, mut work: Work, body: &[u8]) -> Result<Answer, Problem> {
    let body: CursorBody = decode(body)?;
    body.batch.check()?;
    let (id, mut stream) = doors.streams().take(body.baton.as_deref(), work.caller())?;
    let done = batch::run(&mut stream, &mut work, body.batch).await;
    let baton = doors.streams().keep(id, stream, work.caller())?;
    let mut json = Json::default();
    json.raw("{");
    frame(&mut json, doors, Some(&baton));
    json.raw("}\n");
    match done {
        Ok(results) => {
            let mut cursor = Cursor::new(results);
            while cursor.write_next(&mut json) {
                json.raw("\n");
            }
        }
        Err(problem) => {
            json.raw("{\"type\":\"error\",\"error\":");
            write_problem(&mut json, &problem);
            json.raw("}\n");
        }
    }
    Ok(with_position(answer(StatusCode::OK, Content::Lines, json.into_bytes()), work.position()))
}

/// Answers `POST /v1/execute` and `/v1/batch`, which have no streams.
pub(crate) async fn stateless(mut work: Work, body: &[u8], is_batch: bool) -> Result<Answer, Problem> {
    let mut stream = Stream::default();
    let request = if is_batch {
        StreamRequest::Batch { batch: decode::<CursorBody>(body)?.batch }
    } else {
        StreamRequest::Execute { stmt: decode::<decode::ExecuteBody>(body)?.stmt }
    };
    request.check()?;
    match serve(&mut stream, &mut work, request).await {
        Done::Ok(_, result) => {
            let mut json = Json::default();
            json.raw("{\"result\":").append(result.unwrap_or_default()).raw("}");
            Ok(with_position(answer(StatusCode::OK, Content::Json, json.into_bytes()), work.position()))
        }
        Done::Problem(problem) => Err(problem),
    }
}

/// Writes the fields that all answers of a stream begin with.
fn frame(json: &mut Json, doors: &Doors, baton: Option<&str>) {
    let mut field = |name: &str, value: Option<&str>| {
        json.raw(name);
        match value {
            Some(value) => json.string(value),
            None => json.raw("null"),
        };
    };
    field("\"baton\":", baton);
    field(",\"base_url\":", doors.options().base_url.as_deref());
}

/// Serves one request on a stream.
async fn serve(stream: &mut Stream, work: &mut Work, request: StreamRequest) -> Done {
    let kind = request.kind();
    let served = match request {
        StreamRequest::Close => {
            stream.close();
            Ok(None)
        }
        StreamRequest::Execute { stmt } => {
            let want_rows = stmt.want_rows();
            let ran = stream.execute(work, stmt).await;
            ran.map(|ran| Some(encode::statement(&ran, want_rows)))
        }
        StreamRequest::Batch { batch } => {
            let results = batch::run(stream, work, batch).await;
            results.map(|results| Some(encode::batch(&results)))
        }
        StreamRequest::Sequence { text } => match stream.text(text) {
            Ok(script) => stream.sequence(work, &script).await.map(|()| None),
            Err(problem) => Err(problem),
        },
        StreamRequest::Describe { text } => match stream.text(text) {
            Ok(sql) => describe::describe(stream, work, &sql).await.map(Some),
            Err(problem) => Err(problem),
        },
        StreamRequest::StoreSql { sql_id, sql } => stream.texts.store(sql_id, sql).map(|()| None),
        StreamRequest::CloseSql { sql_id } => {
            stream.texts.forget(sql_id);
            Ok(None)
        }
        StreamRequest::GetAutocommit => {
            let mut json = Json::default();
            json.raw(if stream.is_autocommit() { "true" } else { "false" });
            Ok(Some(json))
        }
    };
    served.map_or_else(Done::Problem, |json| Done::Ok(kind, json))
}

fn write_done(json: &mut Json, done: Done) {
    match done {
        Done::Ok(kind, result) => {
            json.raw("{\"type\":\"ok\",\"response\":");
            write_response(json, kind, result);
            json.raw("}");
        }
        Done::Problem(problem) => {
            json.raw("{\"type\":\"error\",\"error\":");
            write_problem(json, &problem);
            json.raw("}");
        }
    }
}
