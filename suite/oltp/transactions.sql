-- The five transactions of TPC-C (clause 2) as functions of the server, one call each.
-- All that is random in one is drawn from its seed: the same seed does the same.

-- A whole number from `low` to `high`, the k-th that a seed gives.
CREATE FUNCTION draw(seed bigint, k int, low int, high int) RETURNS int IMMUTABLE LANGUAGE sql AS $$
    SELECT low + ((hashint8extended(k, seed) & 9223372036854775807) % (high - low + 1))::int
$$;

-- Non-uniform, clause 2.1.6: `a` and the constant `c` as there.
CREATE FUNCTION nurand(seed bigint, k int, a int, x int, y int, c int) RETURNS int
IMMUTABLE LANGUAGE sql AS $$
    SELECT ((draw(seed, k, 0, a) | draw(seed, k + 1, x, y)) + c) % (y - x + 1) + x
$$;

-- Last name of a number from 0 to 999, clause 4.3.2.3.
CREATE FUNCTION last_name(n int) RETURNS text IMMUTABLE LANGUAGE sql AS $$
    SELECT s[n / 100 + 1] || s[n / 10 % 10 + 1] || s[n % 10 + 1] FROM (SELECT ARRAY['BAR', 'OUGHT',
        'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'] AS s) AS syllables
$$;

-- Another warehouse than `home`; `home` if there is no other.
CREATE FUNCTION elsewhere(seed bigint, k int, home int, warehouses int) RETURNS int
IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN warehouses = 1 THEN home
        ELSE (home + draw(seed, k, 1, warehouses - 1) - 1) % warehouses + 1 END
$$;

-- The customer of a payment or a question: by last name in 60 %, the middle one of that name.
CREATE FUNCTION chosen_customer(seed bigint, w int, d int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    found_ids int[];
BEGIN
    IF draw(seed, 10, 1, 100) > 60 THEN
        RETURN nurand(seed, 11, 1023, 1, 3000, c_id_constant());
    END IF;
    SELECT array_agg(c_id ORDER BY c_first) INTO found_ids FROM customer
    WHERE c_w_id = w AND c_d_id = d
        AND c_last = last_name(nurand(seed, 13, 255, 0, 999, c_last_constant()));
    RETURN found_ids[(cardinality(found_ids) + 1) / 2];
END $$;

-- An order of 5 to 15 lines.  `cancelled`: its last item does not exist, which undoes it all.
CREATE FUNCTION new_order(home int, warehouses int, seed bigint, cancelled boolean DEFAULT false)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    d int := draw(seed, 1, 1, 10);
    c int := nurand(seed, 2, 1023, 1, 3000, c_id_constant());
    lines int := draw(seed, 4, 5, 15);
    tax numeric;
    d_tax_now numeric;
    discount numeric;
    o int;
    price numeric;
    dist text;
    line record;
    any_remote boolean := false;
BEGIN
    SELECT w_tax INTO STRICT tax FROM warehouse WHERE w_id = home;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = home AND d_id = d
    RETURNING d_next_o_id - 1, d_tax INTO STRICT o, d_tax_now;
    SELECT c_discount INTO STRICT discount FROM customer
    WHERE c_w_id = home AND c_d_id = d AND c_id = c;
    INSERT INTO new_order VALUES (o, d, home);
    FOR line IN  -- in one order everywhere, so that two orders do not wait for each other
        SELECT n, CASE WHEN cancelled AND n = lines THEN 100001
                ELSE nurand(seed, 100 + 10 * n, 8191, 1, 100000, i_id_constant()) END AS i,
            CASE WHEN draw(seed, 102 + 10 * n, 1, 100) = 1
                THEN elsewhere(seed, 103 + 10 * n, home, warehouses) ELSE home END AS w,
            draw(seed, 104 + 10 * n, 1, 10) AS quantity
        FROM generate_series(1, lines) AS n ORDER BY w, i, n
    LOOP
        SELECT i_price INTO STRICT price FROM item WHERE i_id = line.i;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= line.quantity + 10 THEN s_quantity - line.quantity
                ELSE s_quantity - line.quantity + 91 END,
            s_ytd = s_ytd + line.quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (line.w <> home)::int
        WHERE s_w_id = line.w AND s_i_id = line.i
        RETURNING CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
            WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
            WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
            ELSE s_dist_10 END INTO STRICT dist;
        INSERT INTO order_line VALUES (o, d, home, line.n, line.i, line.w, NULL, line.quantity,
            line.quantity * price, dist);
        any_remote := any_remote OR line.w <> home;
    END LOOP;
    INSERT INTO orders VALUES (o, d, home, c, now(), NULL, lines, (NOT any_remote)::int);
    RETURN o;
END $$;

-- The 1 % of new orders whose user changes his mind, clause 2.4.1.4: undone by a savepoint.
CREATE FUNCTION cancelled_order(home int, warehouses int, seed bigint) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
    RETURN new_order(home, warehouses, seed, true);
EXCEPTION WHEN no_data_found THEN
    RETURN 0;
END $$;

CREATE FUNCTION payment(home int, warehouses int, seed bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    d int := draw(seed, 1, 1, 10);
    remote boolean := warehouses > 1 AND draw(seed, 2, 1, 100) > 85;
    cw int := CASE WHEN remote THEN elsewhere(seed, 3, home, warehouses) ELSE home END;
    cd int := CASE WHEN remote THEN draw(seed, 4, 1, 10) ELSE d END;
    amount numeric := draw(seed, 5, 100, 500000) / 100.0;
    w_name_now text;
    d_name_now text;
    c int;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = home
    RETURNING w_name INTO STRICT w_name_now;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = home AND d_id = d
    RETURNING d_name INTO STRICT d_name_now;
    c := chosen_customer(seed, cw, cd);
    UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE c_credit WHEN 'BC' THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, d, home,
            amount, c_data), 500) ELSE c_data END
    WHERE c_w_id = cw AND c_d_id = cd AND c_id = c;
    INSERT INTO history VALUES (c, cd, cw, d, home, now(), amount,
        w_name_now || '    ' || d_name_now);
    RETURN c;
END $$;

CREATE FUNCTION order_status(home int, seed bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    d int := draw(seed, 1, 1, 10);
    c int := chosen_customer(seed, home, d);
    who record;
    o int;
    lines bigint;
BEGIN
    SELECT c_balance, c_first, c_middle, c_last INTO STRICT who FROM customer
    WHERE c_w_id = home AND c_d_id = d AND c_id = c;
    SELECT o_id INTO STRICT o FROM orders WHERE o_w_id = home AND o_d_id = d AND o_c_id = c
    ORDER BY o_id DESC LIMIT 1;
    SELECT count((ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d)) INTO lines
    FROM order_line WHERE ol_w_id = home AND ol_d_id = d AND ol_o_id = o;
    RETURN lines;
END $$;

-- The oldest open order of each district; how many there were.  All in one transaction, at once.
CREATE FUNCTION delivery(home int, seed bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    carrier int := draw(seed, 1, 1, 10);
    delivered int := 0;
    o int;
    c int;
    total numeric;
BEGIN
    FOR d IN 1..10 LOOP
        LOOP  -- another delivery may take the one that we waited for
            SELECT no_o_id INTO o FROM new_order WHERE no_w_id = home AND no_d_id = d
            ORDER BY no_o_id LIMIT 1;
            EXIT WHEN NOT FOUND;
            DELETE FROM new_order WHERE no_w_id = home AND no_d_id = d AND no_o_id = o;
            EXIT WHEN FOUND;
        END LOOP;
        CONTINUE WHEN o IS NULL;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = home AND o_d_id = d AND o_id = o
        RETURNING o_c_id INTO STRICT c;
        WITH lines AS (
            UPDATE order_line SET ol_delivery_d = now()
            WHERE ol_w_id = home AND ol_d_id = d AND ol_o_id = o RETURNING ol_amount
        ) SELECT sum(ol_amount) INTO STRICT total FROM lines;
        UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = home AND c_d_id = d AND c_id = c;
        delivered := delivered + 1;
    END LOOP;
    RETURN delivered;
END $$;

CREATE FUNCTION stock_level(home int, seed bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    d int := draw(seed, 1, 1, 10);
    threshold int := draw(seed, 2, 10, 20);
    next int;
    low bigint;
BEGIN
    SELECT d_next_o_id INTO STRICT next FROM district WHERE d_w_id = home AND d_id = d;
    SELECT count(DISTINCT s_i_id) INTO low FROM order_line
    JOIN stock ON s_w_id = home AND s_i_id = ol_i_id AND s_quantity < threshold
    WHERE ol_w_id = home AND ol_d_id = d AND ol_o_id >= next - 20 AND ol_o_id < next;
    RETURN low;
END $$;
