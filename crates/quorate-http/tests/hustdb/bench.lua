-- Sends requests to one endpoint of huststore, with the login of its users:
--
--     wrk -t8 -c8 -d1s -s bench.lua http://HOST -- ENDPOINT COUNT
--
-- A COUNT of 0 is for what writes: each thread uses new keys. Else it uses its first COUNT keys again and again. Values
-- and members have about 1 KB. There must be as many connections as threads: a thread sends one request at a time.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
  thread:set("id", #threads)
end

function init(args)
  endpoint, count = args[1], tonumber(args[2])
  filler = string.rep("0123456789", 95)
  answered, refused = 0, 0
  headers = { ["Content-Type"] = "text/plain", ["Authorization"] = "Basic aHVzdHN0b3JlOmh1c3RzdG9yZQ==" }
end

function request()
  -- wrk calls this once more at the start, without sending anything.
  local number = answered
  if count > 0 then number = answered % count end
  local key = string.format("bench_%d_%d", id, number)
  local of, body = string.sub(endpoint, 1, 1), nil
  if endpoint == "put" or endpoint == "hset" then body = filler .. key end
  local query = "key=" .. key
  if of == "h" then query = string.format("tb=bench_hash_%d&%s", id, query) end
  if of == "s" or of == "z" then
    body = filler .. key
    query = string.format("tb=bench_%s_%d", of, id)
  end
  if endpoint == "zadd" then query = string.format("%s&score=%d", query, number % 100 + 1) end
  return wrk.format(body and "POST" or "GET", "/hustdb/" .. endpoint .. "?" .. query, headers, body)
end

function response(status)
  answered = answered + 1
  if status ~= 200 then refused = refused + 1 end
end

function done(summary)
  local errors = summary.errors
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  local least, total, refused = math.huge, 0, 0
  for _, thread in ipairs(threads) do
    least = math.min(least, thread:get("answered"))
    total = total + thread:get("answered")
    refused = refused + thread:get("refused")
  end
  print(string.format("result %d %d %d", least, total, refused + broken))
end
