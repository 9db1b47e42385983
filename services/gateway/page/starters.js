// ---- Prompts to begin with

const STARTERS = [
  ['Explain speculative decoding to a curious teenager.', 'Prose'],
  ['Write a Python function that merges two sorted lists, and test it.', 'Code'],
  ['List the planets in a table with one fact each.', 'A table'],
  ['Double every price and repeat the rest as it is:\n\n```json\n[{"item": "tea", "price": 3}, {"item": "bread", "price": 4}, {"item": "honey", "price": 9}]\n```', 'Copying, which drafts well'],
];

const ORDERS = `def summarize_orders(orders, discounts, tax_rate):
    totals = {}
    rejected = []
    for order in orders:
        customer = order.get("customer")
        items = order.get("items", [])
        if not customer or not items:
            rejected.append(order)
            continue
        subtotal = 0
        for item in items:
            quantity = item.get("quantity", 1)
            if quantity < 1:
                continue
            subtotal += quantity * item["price"]
        discount = discounts.get(customer, 0)
        if subtotal > 100:
            discount = max(discount, 0.05)
        net = subtotal * (1 - discount)
        entry = totals.setdefault(customer, {"orders": 0, "net": 0, "tax": 0})
        entry["orders"] += 1
        entry["net"] += net
        entry["tax"] += net * tax_rate
    report = []
    for customer, entry in sorted(totals.items()):
        gross = entry["net"] + entry["tax"]
        report.append((customer, entry["orders"], round(gross, 2)))
    best = max(report, key=lambda row: row[2], default=None)
    return report, best, rejected`;

// For comparisons. The first answer repeats most of its prompt, and a schema forces
// part of the last one; the others give drafters less to go by.
const RACES = [
  ['Add type hints to this function and change nothing else:\n\n```python\n' + ORDERS + '\n```', 'Editing code: most of the answer is in the prompt'],
  ['Why is the sky blue at noon and red in the evening?', 'A question'],
  ['Write a Python class for a least-recently-used cache with get, put and a maximum size.', 'Code from a description'],
  ['Describe photosynthesis for a school dictionary.', 'JSON: the schema forces names and marks', 'schema'],
];

// Adds a button for each starter; it calls start(prompt, output format or undefined).
function fillStarters(list, starters, start) {
  list.append(...starters.map(([text, about, output]) => h('button', { type: 'button', on: { click: () => start(text, output) } }, text.split('\n')[0], h('small', {}, about))));
}
