//! Owns scripts: JavaScript in an engine of its own for each, with `$` for the input and bounds on everything.

use std::sync::atomic::{AtomicU32, Ordering};

use rquickjs::{CatchResultExt, Context, Runtime};
use serde_json::Value;

/// What a script may take.
const MEMORY_BYTES_MAX: usize = 32 * 1024 * 1024;
const STACK_BYTES_MAX: usize = 256 * 1024;
/// The engine asks now and then whether to go on; after so many times, some seconds of work, it does not.
const PATIENCE: u32 = 20_000;
/// The largest result.
const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// Works a script out; what its last expression is, or what it returns.
pub(super) fn evaluate(script: &str, input: &Value) -> Result<Value, Box<str>> {
    let broken = |error: rquickjs::Error| -> Box<str> { format!("the script engine failed: {error}").into() };
    let runtime = Runtime::new().map_err(broken)?;
    runtime.set_memory_limit(MEMORY_BYTES_MAX);
    runtime.set_max_stack_size(STACK_BYTES_MAX);
    let asked = AtomicU32::new(0);
    runtime.set_interrupt_handler(Some(Box::new(move || asked.fetch_add(1, Ordering::Relaxed) > PATIENCE)));
    let context = Context::full(&runtime).map_err(broken)?;
    context.with(|context| {
        let said = |error: rquickjs::CaughtError<'_>| -> Box<str> { format!("the script failed: {error}").into() };
        context.globals().set("__input", input.to_string()).map_err(broken)?;
        // Scripts are written as a function that is called, as statements that end in a value, or with a return.
        let setup = "globalThis.$ = JSON.parse(globalThis.__input); delete globalThis.__input;";
        context.eval::<(), _>(setup).catch(&context).map_err(said)?;
        let wrapped = format!("globalThis.__result = (function() {{\n{script}\n}})();");
        let is_function_body = has_return(script);
        let code =
            if is_function_body { wrapped } else { format!("globalThis.__result = eval({});", Value::from(script)) };
        context.eval::<(), _>(code).catch(&context).map_err(said)?;
        let read = "JSON.stringify(globalThis.__result === undefined ? null : globalThis.__result) ?? 'null'";
        let text: String = context.eval(read).catch(&context).map_err(said)?;
        if text.len() > RESULT_BYTES_MAX {
            return Err(format!("the result of the script is larger than {RESULT_BYTES_MAX} bytes").into());
        }
        serde_json::from_str(&text).map_err(|error| format!("the result of the script is not JSON: {error}").into())
    })
}

/// Whether the script returns without a function of its own: then it is the body of one.
fn has_return(script: &str) -> bool {
    let mut words = script.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
    !script.contains("=>") && !script.contains("function") && words.any(|word| word == "return")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_script_is_a_called_function_statements_with_a_value_or_a_body_with_a_return() {
        let input = json!({ "n": 2, "loop": { "iteration": 3 } });
        for (script, result) in [
            ("(function () { return $.n * 21; })();", json!(42)),
            ("function e() { return $.n; } e();", json!(2)),
            ("$.n + 1", json!(3)),
            ("if ($.loop['iteration'] < 3) { true; } else { false; }", json!(false)),
            ("return { a: [$.n] };", json!({ "a": [2] })),
            ("if ($.n > 1) { return 'big' } return 'small'", json!("big")),
            ("undefined", json!(null)),
        ] {
            assert_eq!(evaluate(script, &input), Ok(result), "{script}");
        }
    }

    #[test]
    fn a_script_that_fails_or_does_not_end_is_an_error_in_words() {
        let failed = |script: &str| evaluate(script, &json!({})).expect_err("it fails").to_string();
        assert!(failed("throw new Error('no')").contains("no"));
        assert!(failed("$.a.b").contains("the script failed"));
        assert!(failed("syntax error here").contains("the script failed"));
        assert!(failed("while (true) {}").contains("interrupted"));
        failed("let a = []; while (true) { a.push(new Array(10000).fill(1)) }");
        failed("(function f() { return f() + 1; })()");
        failed("'x'.repeat(2000000)");
    }

    #[test]
    fn a_script_reaches_nothing_but_the_language() {
        for name in ["require", "process", "fetch", "std", "os", "setTimeout"] {
            assert_eq!(evaluate(&format!("typeof {name}"), &json!({})), Ok(json!("undefined")), "{name}");
        }
    }
}
