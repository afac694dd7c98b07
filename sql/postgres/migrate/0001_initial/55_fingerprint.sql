-- Fingerprints, version 1, the same as libonce's (docs/internals/fingerprint.md).
--
-- The type json only tells whether a text is JSON. These functions read it token by token, so that they see number
-- literals,
-- duplicate members and \u0000 as they are: jsonb would lose the first two and refuse the third.
--
-- Backslashes are in E'' strings only, here and in all functions: in other strings their meaning depends on the
-- session's
-- standard_conforming_strings.

-- The bytes that a JSON string means; token: with its quotes. NULL: half a surrogate pair.
CREATE FUNCTION once.json_string(token text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    plain text := substr(token, 2, length(token) - 2);
    bytes bytea := '';
    high  integer;   -- the first half of a pair
    code  integer;
    piece text;
BEGIN
    IF strpos(plain, E'\\') = 0 THEN
        RETURN convert_to(plain, 'UTF8');
    END IF;
    FOR piece IN SELECT m[1] FROM regexp_matches(plain, E'(\\\\u[0-9a-fA-F]{4}|\\\\.|[^\\\\]+)', 'g') m LOOP
        code := NULL;
        IF left(piece, 2) = E'\\u' THEN
            code := ('x' || substr(piece, 3))::bit(16)::integer;
        END IF;
        IF high IS NOT NULL THEN
            IF code IS NULL OR code NOT BETWEEN 56320 AND 57343 THEN
                RETURN NULL;
            END IF;
            bytes := bytes || convert_to(chr((high - 55296 + 64) * 1024 + code - 56320), 'UTF8');
            high := NULL;
        ELSIF code BETWEEN 55296 AND 56319 THEN
            high := code;
        ELSIF code BETWEEN 56320 AND 57343 THEN
            RETURN NULL;
        ELSIF code = 0 THEN
            bytes := bytes || E'\\x00'::bytea;
        ELSIF code IS NOT NULL THEN
            bytes := bytes || convert_to(chr(code), 'UTF8');
        ELSIF left(piece, 1) = E'\\' THEN
            bytes := bytes || convert_to(CASE substr(piece, 2)
                WHEN 'b' THEN chr(8) WHEN 'f' THEN chr(12) WHEN 'n' THEN chr(10) WHEN 'r' THEN chr(13)
                WHEN 't' THEN chr(9) ELSE substr(piece, 2) END, 'UTF8');
        ELSE
            bytes := bytes || convert_to(piece, 'UTF8');
        END IF;
    END LOOP;
    RETURN CASE WHEN high IS NULL THEN bytes END;
END $$;

-- These bytes as a JSON string in canonical form.
CREATE FUNCTION once.json_quoted(bytes bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    quoted bytea := '"';
    done   integer := 0;
    code   integer;
BEGIN
    FOR i IN 0 .. length(bytes) - 1 LOOP
        code := get_byte(bytes, i);
        IF code < 32 OR code IN (34, 92) THEN
            quoted := quoted || substr(bytes, done + 1, i - done) || CASE code
                WHEN 34 THEN E'\\x5c22'::bytea WHEN 92 THEN E'\\x5c5c'::bytea
                ELSE convert_to(E'\\u' || lpad(to_hex(code), 4, '0'), 'UTF8') END;
            done := i + 1;
        END IF;
    END LOOP;
    RETURN quoted || substr(bytes, done + 1) || '"'::bytea;
END $$;

-- The canonical form; NULL: the text has none, and its exact bytes are used.
CREATE FUNCTION once.json_canonical(body bytea, exclude text[] DEFAULT '{}') RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    whole    text;
    token    text;
    pointers bytea[];
    depth    integer := 0;
    seen     integer := 0;
    -- of each open container
    opened   text[] := '{}';
    starts   integer[] := '{}';   -- where its items begin
    places   integer[] := '{}';   -- how many items it has so far
    paths    bytea[] := '{}';     -- its own JSON Pointer
    owners   bytea[] := '{}';     -- its own name
    -- items: name and canonical form; NULL is excluded
    names    bytea[] := '{}';
    forms    bytea[] := '{}';
    top      integer := 0;
    name     bytea;               -- of the member whose value comes next
    path     bytea;
    form     bytea;
    is_name  boolean := false;
BEGIN
    IF getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'JSON is canonicalised in databases with encoding UTF8 only' USING ERRCODE = '0A000';
    END IF;
    IF cardinality(exclude) > ONCE_JSON_EXCLUDE_COUNT_MAX THEN
        RAISE EXCEPTION '% members are to be excluded, the limit is ONCE_JSON_EXCLUDE_COUNT_MAX', cardinality(exclude) USING ERRCODE = '54000';
    END IF;
    SELECT array_agg(convert_to(p, 'UTF8')) INTO pointers FROM unnest(exclude) p;
    SELECT p INTO token FROM unnest(exclude) p WHERE p !~ '^(/([^~]|~[01])*)$' OR p IS NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'exclude: ''%'' is not a JSON Pointer to a member or element', token USING ERRCODE = '22023';
    END IF;
    IF length(body) > ONCE_JSON_LEN_MAX THEN
        RETURN NULL;
    END IF;
    BEGIN
        whole := convert_from(body, 'UTF8');
        PERFORM whole::json;
    EXCEPTION
        WHEN data_exception OR statement_too_complex THEN
            RETURN NULL;
    END;
    FOR token IN SELECT m[1] FROM regexp_matches(whole, E'("(?:[^"\\\\]|\\\\.)*"|[][{},:]|[^][{},:"\\s]+)', 'g') m LOOP
        CONTINUE WHEN token = ':';
        IF token = ',' THEN
            is_name := opened[depth] = '{';
            CONTINUE;
        END IF;
        IF is_name AND token <> '}' THEN
            name := once.json_string(token);
            IF name IS NULL THEN
                RETURN NULL;
            END IF;
            is_name := false;
            CONTINUE;
        END IF;
        IF token IN ('}', ']') THEN
            is_name := false;
            IF (SELECT count(n) > count(DISTINCT n) FROM unnest(names[starts[depth]:top]) n) THEN
                RETURN NULL;
            END IF;
            IF token = '}' THEN
                SELECT '{'::bytea || coalesce(string_agg(once.json_quoted(i.name) || ':'::bytea || i.form, ','
                                                         ORDER BY i.name), '') || '}'::bytea
                  INTO form FROM unnest(names[starts[depth]:top], forms[starts[depth]:top]) AS i (name, form)
                 WHERE i.form IS NOT NULL;
            ELSE
                SELECT '['::bytea || coalesce(string_agg(i.form, ',' ORDER BY i.n), '') || ']'::bytea
                  INTO form FROM unnest(forms[starts[depth]:top]) WITH ORDINALITY AS i (form, n)
                 WHERE i.form IS NOT NULL;
            END IF;
            top := starts[depth] - 1;
            path := paths[depth];
            name := owners[depth];
            depth := depth - 1;
        ELSE
            -- A value begins: find its JSON Pointer.
            seen := seen + 1;
            IF seen > ONCE_JSON_VALUE_COUNT_MAX THEN
                RETURN NULL;
            END IF;
            path := '';
            IF depth > 0 THEN
                places[depth] := places[depth] + 1;
                path := paths[depth] || '/'::bytea ||
                        CASE WHEN opened[depth] = '['
                             THEN convert_to((places[depth] - 1)::text, 'UTF8')
                             ELSE once.json_escape(name) END;
            END IF;
            IF token IN ('{', '[') THEN
                IF depth >= ONCE_JSON_DEPTH_MAX THEN
                    RETURN NULL;
                END IF;
                depth := depth + 1;
                owners[depth] := name;
                opened[depth] := token;
                starts[depth] := top + 1;
                places[depth] := 0;
                paths[depth] := path;
                is_name := token = '{';
                name := NULL;
                CONTINUE;
            END IF;
            form := convert_to(token, 'UTF8');
            IF left(token, 1) = '"' THEN
                form := once.json_quoted(once.json_string(token));
                IF form IS NULL THEN
                    RETURN NULL;
                END IF;
            END IF;
        END IF;
        -- A value is complete.
        IF depth = 0 THEN
            RETURN form;
        END IF;
        top := top + 1;
        names[top] := CASE WHEN opened[depth] = '{' THEN name END;
        forms[top] := CASE WHEN pointers IS NULL OR path <> ALL (pointers) THEN form END;
    END LOOP;
    RETURN NULL;
END $$;

-- A name, escaped for a JSON Pointer.
CREATE FUNCTION once.json_escape(name bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    escaped bytea := '';
    code    integer;
BEGIN
    IF position('~'::bytea IN name) = 0 AND position('/'::bytea IN name) = 0 THEN
        RETURN name;
    END IF;
    FOR i IN 0 .. length(name) - 1 LOOP
        code := get_byte(name, i);
        escaped := escaped || CASE code WHEN 126 THEN '~0'::bytea WHEN 47 THEN '~1'::bytea
                                        ELSE substr(name, i + 1, 1) END;
    END LOOP;
    RETURN escaped;
END $$;

CREATE FUNCTION once.fingerprint(tenant text, method text, path text, query text DEFAULT '', body bytea DEFAULT '',
                                 headers text[] DEFAULT '{}', json boolean DEFAULT false,
                                 exclude text[] DEFAULT '{}')
RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    salt  bytea := once.mac(once.part('once fingerprint 1') || once.part(convert_to(coalesce(tenant, ''), 'UTF8')));
    lines bytea;
    form  bytea;
BEGIN
    IF method IS NULL OR path IS NULL THEN
        RAISE EXCEPTION 'a request has a method and a path' USING ERRCODE = '22023';
    END IF;
    IF cardinality(headers) > 0 AND (array_ndims(headers) <> 2 OR array_length(headers, 2) <> 2 OR
                                     EXISTS (SELECT FROM unnest(headers) v WHERE v IS NULL)) THEN
        RAISE EXCEPTION 'headers are not pairs {{name, value}, ...}' USING ERRCODE = '22023';
    END IF;
    IF array_length(headers, 1) > ONCE_FINGERPRINT_HEADER_COUNT_MAX THEN
        RAISE EXCEPTION '% headers are to be fingerprinted, the limit is ONCE_FINGERPRINT_HEADER_COUNT_MAX', array_length(headers, 1)
            USING ERRCODE = '54000';
    END IF;
    SELECT string_agg(once.part(h.name) || once.part(h.value), '' ORDER BY h.name, h.n) INTO lines FROM (
        SELECT convert_to(translate(headers[n][1], 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz'),
                          'UTF8') AS name,
               convert_to(btrim(headers[n][2], E' \t'), 'UTF8') AS value, n
          FROM generate_subscripts(headers, 1) n) h;
    IF length(lines) > ONCE_FINGERPRINT_HEADERS_LEN_MAX THEN
        RAISE EXCEPTION 'headers to be fingerprinted are longer than ONCE_FINGERPRINT_HEADERS_LEN_MAX bytes' USING ERRCODE = '54000';
    END IF;
    IF json THEN
        form := once.json_canonical(coalesce(body, ''), coalesce(exclude, '{}'));
    END IF;
    RETURN once.hmac(salt, once.part('http') || once.part(convert_to(method, 'UTF8')) ||
                           once.part(convert_to(path, 'UTF8')) ||
                           once.part(convert_to(coalesce(query, ''), 'UTF8')) || once.part(coalesce(lines, '')) ||
                           once.part(CASE WHEN form IS NULL THEN 'exact' ELSE 'json' END::bytea) ||
                           once.part(sha256(coalesce(form, body, ''))));
END $$;
COMMENT ON FUNCTION once.fingerprint(text, text, text, text, bytea, text[], boolean, text[]) IS
    'The fingerprint of an HTTP request, as libonce computes it. headers: {{name, value}, ...}, those that count; json: '
    'canonicalise the body; exclude: JSON Pointers of members that do not count';
